"""A run that a training loop of the user's own takes part in; `islands.join` returns one.

    with islands.join("10.0.0.1:7070", params, tokens_per_step=batch * length) as run:
        params = run.params
        while not run.over:
            params = run.boundary(params)
            …the user's own step…

The next boundary, or `done`, books the step between if the parameters have changed; a step that was
not taken is given back. Once the run is over, `boundary` returns its arguments, and further steps
are the user's own affair. docs/own_loops.md has the rest.
"""

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from islands.learner.stepped_compute import SteppedCompute
from islands.loops.background import Background
from islands.loops.own_data import Batch, LeasedBatches, Read
from islands.loops.own_model import Parameters, Tree
from islands.protocol.errors import SettingsError, TaskError, TaskFailedError
from islands.protocol.messages.control import wrong_metrics
from islands.tasks.data.shards import ShardPlan

State = TypeVar("State")
Result = TypeVar("Result")

LEAVING_S = 2.0
"""Longest wait of a loop that failed for the learner's own end."""

ENDING_S = 10.0
"""Longest time in which a learner that has ended closes its links and its tape."""

NO_STEP = (
    "a boundary was given the parameters of the one before, unchanged, so it counted no step: call "
    "it once for each step that changes them, with tokens_per_step for all that this step "
    "processes, and between steps only while the loop waits for data"
)


class JoinedRun(Generic[Tree]):
    """A run that a loop of the user's own takes part in, and the shards of the leased `records`."""

    def __init__(
        self,
        name: str,
        parameters: Parameters[Tree],
        compute: SteppedCompute,
        background: Background,
        records: ShardPlan | None = None,
    ) -> None:
        self.name = name
        self._parameters = parameters
        self._compute = compute
        self._background = background
        self._records = records
        self._leased = False  # whether `batches` was called
        self._announced = False
        self._reported_no_step = False
        self._inside = False  # a boundary is under way, or was broken off
        self._left = ""
        self._ended = False
        self._undo: list[Callable[[], object]] = []
        self._logged: dict[str, object] = {}
        compute.arrive(until=lambda: bool(compute.boundary.versions))  # the run's first values
        self._raise_failure()
        self._give()

    @property
    def params(self) -> Tree:
        """The parameters of the last boundary (until a step donates them), or the run's first."""
        return self._params

    @property
    def optimizer(self) -> Any:  # noqa: ANN401  a tree of the user's
        """The optimizer's state to go on with, where the run was joined with it; None elsewhere.

        It is what the last boundary was given, or at first a peer's.
        """
        return self._optimizer

    @property
    def over(self) -> bool:
        """Whether the run is over or this learner has left it, which all processes see at once."""
        return self._compute.stopped

    @property
    def why(self) -> str:
        """Why the learner has ended, as a sentence; empty as long as it trains."""
        if not self.over:
            return ""
        self._background.join(ENDING_S)
        return self._background.ended

    @property
    def clock(self) -> float:
        """The clock of learning-rate schedules: how many steps the fleet has taken per learner."""
        return self._compute.boundary.clock

    def boundary(self, params: Tree, loss: object = None, *, optimizer: object = None) -> Tree:
        """Exchange what is due between two steps, and wait until the next step may be taken.

        Args:
            params: the parameters after the last step; they are consumed.
            loss: the last step's loss, as an array that may not be computed yet, or a number. It is
                shown in the run's status, and one that is not finite has this learner start over.
            optimizer: the optimizer's state after the last step, where the run was joined with
                one; go on with the property `optimizer`.

        Returns:
            The parameters to take the next step with.

        Raises:
            TaskError: the parameters are others than those that joined, or were deleted.
            TaskFailedError: the loss was not finite; the user's optimizer has to begin anew.
            HostLostError: another process of this loop was lost, is stuck or has failed.
            IslandsError: the run refused this learner.
        """
        if self.over or self._background.failed:
            self._params, self._optimizer = params, optimizer
            self._raise_failure()
            return params
        self._inside = True
        self._book(params, loss, optimizer)
        self._announce()
        if self._parameters.diverged and not self.over:
            self._announced = False
            raise TaskFailedError(
                f"{self.name}: the loss was not finite; run.params are the run's again: reset the "
                "optimizer's state, and come to boundary with them before the next step"
            )
        return self._params

    def log(self, metrics: Mapping[str, object]) -> None:
        """Report metrics of the step that the next boundary books, such as an accuracy.

        Args:
            metrics: by name, numbers or arrays that may not be computed yet. They are recorded as
                means over steps. `loss` is the loss of a loop that hands none to a boundary.

        Raises:
            TaskError: a name cannot be reported, there are too many, or one is no number.
        """
        wrong = wrong_metrics(self._logged | dict(metrics))
        if wrong is not None:
            raise TaskError(wrong)
        for name, value in metrics.items():
            self._logged[name] = self._parameters.checked(value, name)

    def batches(self, read: Read[Batch], size: int) -> Iterator[Batch]:
        """Read the records that the syncer leases: each once in a pass, by one loop of the fleet.

        The batch of a step is read in its boundary, and taken by `next` after it. It counts as
        trained on when the step is booked. A boundary without a step reads a further batch for the
        same step, as far as the step's tokens have room; then its records are read again.

        Call it before the first boundary. Where `islands.torch.join` was given an optimizer, it
        waits for leases itself: go on with `params`.

        Args:
            read: returns the batch of the records with the indices int64[size] that it is given.
            size: number of records of each batch; a step's tokens are at least as many.

        Returns:
            One batch for each step that a boundary has announced; none once the run is over.

        Raises:
            SettingsError: the run leases no records, or its shards have no room for a batch.
            TaskError: it comes too late, or for the second time.
            IslandsError: the learner has ended by an error.
        """
        if self._records is None:
            raise SettingsError(
                "this run leases no records: its first loop tells how many there are, by "
                "islands.join(…, records=NUMBER)"
            )
        tokens = self._compute.batch_tokens
        if size > tokens:
            raise SettingsError(
                f"a batch has {size} records, and tokens_per_step is {tokens}; "
                "it must be at least as many"
            )
        if self._leased or self._compute.boundary.steps:
            raise TaskError("run.batches is called once, before the first step")
        leased = LeasedBatches(self._records, size, read, tokens)
        self._leased = True
        self._compute.reads(leased)
        if self._announced and not leased.ready():  # after a boundary, such as that in `join`
            self._announce()
        return self._taken(leased)

    def _taken(self, leased: LeasedBatches[Batch]) -> Iterator[Batch]:
        while not self.over:
            if not self._announced:
                raise TaskError("a batch was taken before a boundary; come to boundary first")
            yield leased.take()

    def done(self, params: Tree, loss: object = None, *, optimizer: object = None) -> Tree:
        """Book the last step and leave the run in order; returns the learner's last parameters.

        The arguments are those of `boundary`.
        """
        over = self.over
        if not over:
            self._book(params, loss, optimizer)
        self._go("its loop is done")
        if over:  # what is held was given to a further step
            self._params, self._optimizer = params, optimizer
        return self._params

    def leave(self, reason: str = "it is asked to leave") -> None:
        """Leave the run in order: a step that was announced and not booked is given back.

        It waits for some seconds at most until what was sent is decided. A handler of signals may
        call it; a boundary that it interrupts leaves when it is done. One of several processes only
        asks: the loop goes on until `over` turns true on all.
        """
        if self._background.together:
            if not self.over:
                self._background.ask(reason)
            return
        self._go(reason)

    def _go(self, reason: str) -> None:
        if not self._left:
            self._left = reason
            self._background.leave(reason)
        if not self._inside:
            self._leave()

    def _leave(self) -> None:
        """Wait for the learner's end, in boundaries if the parameters may be touched."""
        if self._ended:
            return
        self._ended = True
        try:
            if self._announced:  # the parameters may have been donated to a step
                self._compute.rest()
            else:
                self._compute.arrive(until=lambda: False)
                self._give()
        except BaseException as error:  # such as a key that interrupts it
            if self._background.together:
                self._compute.rest()
                self._background.broken(error)
            raise
        finally:
            together = self._background.together  # the others have to leave, too
            self._background.join(ENDING_S if together else LEAVING_S)
            self._background.gone()
            self._compute.stop()
            self._compute.close()
            for undo in self._undo:
                undo()
            self._undo.clear()

    def at_its_end(self, undo: Callable[[], object]) -> None:
        """Undo something, such as a hook in a loop, when this process has left the run."""
        self._undo.append(undo)

    def around(
        self,
        step: Callable[..., Result],
        *,
        get: Callable[[State], Tree],
        put: Callable[[State, Tree], State],
        loss: Callable[[Result], object] = lambda _: None,
        get_optimizer: Callable[[State], object] = lambda _: None,
        put_optimizer: Callable[[State, Any], State] = lambda state, _: state,
    ) -> Callable[..., Result]:
        """Put a boundary before a step, so that a loop that stays as it is takes part in the run.

        Args:
            step: the user's step, whose first argument is a state with the parameters in it.
            get: returns the parameters of a state.
            put: returns the state with other parameters.
            loss: returns the loss from the step's result.
            get_optimizer: returns the optimizer's state, where the run was joined with one.
            put_optimizer: returns the state with another optimizer's state.
        """
        last: list[object] = [None]

        def wrapped(state: State, *rest: object, **named: object) -> Result:
            params = self.boundary(get(state), last[0], optimizer=get_optimizer(state))
            state = put_optimizer(put(state, params), self.optimizer)
            result = step(state, *rest, **named)
            last[0] = loss(result)
            return result

        return wrapped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the run; raises the learner's own error if the loop ended for that reason alone."""
        if error is not None and self._background.together:
            self._announced = True  # other processes come to no boundary that this one comes to
            self._background.came()
            if not self.over:
                self._background.broken(error)
        if self._inside:  # the boundary was broken off, so the arrays are in no known state
            self._announced, self._inside = True, False
        self._go("its loop has ended" if kind is None else f"its loop ended by {kind.__name__}")
        if kind is None:
            self._raise_failure()
        cause = self._background.error
        consequence = self._background.together and isinstance(error, Exception)
        if consequence and cause is not None and cause is not error:
            raise cause from error

    def _announce(self) -> None:
        self._inside = True
        self._announced = self._compute.arrive()
        self._give()
        self._inside = False
        if self._left:  # a handler of signals asked for it meanwhile
            self._announced = False
            self._leave()
        self._raise_failure()

    def _give(self) -> None:
        self._params, self._optimizer = self._parameters.give(), self._parameters.optimizer

    def _book(self, params: Tree, loss: object, optimizer: object) -> None:
        stepped = self._parameters.take(params, optimizer)
        announced, self._announced = self._announced, False
        if not announced:
            return
        if stepped:
            logged, self._logged = self._logged, {}
            given = logged.pop("loss", None)
            loss = given if loss is None else loss
            self._compute.stepped(self._parameters.dispatched(loss, logged))
        elif not self._reported_no_step:
            self._reported_no_step = True
            self._background.say(NO_STEP)

    def _raise_failure(self) -> None:
        if self.over or self._background.failed:
            self._background.came()
            self._background.join(ENDING_S)
            if self._background.error is not None:
                raise self._background.error
