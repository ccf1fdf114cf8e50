"""A run that a training loop of the user's own takes part in; `islands.join` returns one.

    with islands.join("10.0.0.1:7070", params, tokens_per_step=batch * length) as run:
        params = run.params
        while not run.over:
            params = run.boundary(params)
            …the user's own step…

`boundary` stands before a step. It consumes the parameters and returns those to go on with, as a
step with donated arguments does. It waits in these cases alone: until the run's first values are
here, while the run is paused, without tokens that were granted to it (a grant lasts for a minute or
two), and for a merge where the run's preset says so. The step after it is booked when the next
boundary, or `done`, shows that it was taken, by parameters that have changed; a step that was not
taken is given back. Once the run is over, `boundary` returns what it is given, and further steps
are the user's own affair.
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
    "it once for each step that changes them, with tokens_per_step for all that this step processes"
)


class JoinedRun(Generic[Tree]):
    """A run that a loop of the user's own takes part in.

    Args:
        records: how the records that the run leases lie in shards; None if it leases none.
    """

    def __init__(
        self,
        name: str,
        parameters: Parameters[Tree],
        compute: SteppedCompute,
        background: Background,
        records: ShardPlan | None = None,
    ) -> None:
        """Wait for the run's first values."""
        self.name = name
        self._parameters = parameters
        self._compute = compute
        self._background = background
        self._records = records
        self._leased = False  # whether `batches` was called
        self._announced = False
        self._told_no_step = False
        self._inside = False  # a boundary is under way, or was broken off
        self._left = ""
        self._ended = False
        self._undo: list[Callable[[], object]] = []
        self._logged: dict[str, object] = {}
        compute.arrive(until=lambda: bool(compute.boundary.versions))
        self._raise_failure()
        self._give()

    @property
    def params(self) -> Tree:
        """The parameters of the last boundary; before the first, the run's own.

        A step that donates its arguments makes them invalid.
        """
        return self._params

    @property
    def optimizer(self) -> Any:  # noqa: ANN401  a tree of the user's
        """The optimizer's state to go on with, where the run was joined with it; None elsewhere.

        It is what the last boundary was given, or a peer's: a learner that joins a run that goes on
        is given one when it first joins, or at its first boundary.
        """
        return self._optimizer

    @property
    def over(self) -> bool:
        """Whether the run is over, or this learner has left it.

        Of several processes, all see it turn true at the same boundary.
        """
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
        """The clock of learning-rate schedules: how many steps the fleet has taken per learner.

        It goes on where the run is, so a learner that joins late does not begin to warm up.
        """
        return self._compute.boundary.clock

    def boundary(self, params: Tree, loss: object = None, *, optimizer: object = None) -> Tree:
        """Exchange what is due between two steps, and wait until the next step may be taken.

        Args:
            params: the parameters after the last step; they are consumed.
            loss: the last step's loss, as an array that may not be computed yet, or a number. It is
                shown in the run's status, and one that is not finite has this learner start over;
                None if it is not told.
            optimizer: the optimizer's state after the last step, where the run was joined with
                one; go on with the property `optimizer`.

        Returns:
            The parameters to take the next step with.

        Raises:
            TaskError: the parameters are others than those that joined, or were deleted.
            TaskFailedError: the loss was not finite; the values held are the run's, and the user's
                optimizer has to begin anew.
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
            metrics: by name, numbers or arrays that may not be computed yet. They are shown and
                recorded as means over steps, and decide nothing. `loss` is the step's loss, for a
                loop that hands none to a boundary, as with an optimizer of PyTorch.

        Raises:
            TaskError: a name cannot be reported, there are too many, or one is no number.
        """
        wrong = wrong_metrics(self._logged | dict(metrics))
        if wrong is not None:
            raise TaskError(wrong)
        for name, value in metrics.items():
            self._logged[name] = self._parameters.checked(value, name)

    def batches(self, read: Read[Batch], size: int) -> Iterator[Batch]:
        """Read what the syncer leases: each record of the data once in a pass, by whichever loop.

        The batch of a step is read in its boundary, and taken by `next` after it. It counts as
        trained on when the step is booked; otherwise whoever is leased the shard next reads it. A
        boundary without a step reads a further batch for the same step, as far as the tokens of one
        have room for its records; then those of this step are read again.

        Call it before the first boundary. After that (as where `islands.torch.join` was given an
        optimizer), it waits for leases itself, as a boundary does: go on with `params`.

        Args:
            read: returns the batch of the records with the indices int64[size] that it is given; a
                record's index is at least 0 and below the number in the run's layout.
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
        """Yield a batch for each step that was announced.

        Raises:
            TaskError: no step was announced, or it has its batch already.
        """
        while not self.over:
            if not self._announced:
                raise TaskError("a batch was taken before a boundary; come to boundary first")
            yield leased.take()

    def done(self, params: Tree, loss: object = None, *, optimizer: object = None) -> Tree:
        """Book the last step, and leave the run in order.

        Args:
            params: the parameters after the last step; they are consumed.
            loss: see `boundary`.
            optimizer: see `boundary`.

        Returns:
            The parameters that the learner ended with.

        Raises:
            TaskError: see `boundary`.
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

        It waits until what was sent is decided, for some seconds at most. It may be called by a
        handler of signals; if that interrupts a boundary, the boundary leaves when it is done.

        Where several processes take part together, it may be called on one of them alone, and only
        asks: the loop goes on until `over` turns true, at the same boundary on all.
        """
        if self._background.together:
            if not self.over:
                self._background.ask(reason)
            return
        self._go(reason)

    def _go(self, reason: str) -> None:
        """Leave the run, at the same place of the loop on all its processes."""
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
        """Have something undone when this process has left the run, as a hook in a loop."""
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
        """Wrap a step, so that a loop that stays as it is takes part in the run.

        Args:
            step: the user's step, whose first argument is a state with the parameters in it.
            get: returns the parameters of a state.
            put: returns the state with other parameters.
            loss: returns the loss from what the step returned; None where it is not told.
            get_optimizer: returns the optimizer's state, where the run was joined with one.
            put_optimizer: returns the state with another optimizer's state.

        Returns:
            The step with a boundary before it.
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
        """Leave the run.

        Raises:
            IslandsError: the learner failed, and the loop ended for that reason alone.
        """
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
        """Wait until the next step may be taken, and announce it.

        Raises:
            IslandsError: the learner has ended by an error.
        """
        self._inside = True
        self._announced = self._compute.arrive()
        self._give()
        self._inside = False
        if self._left:  # a handler of signals asked for it meanwhile
            self._announced = False
            self._leave()
        self._raise_failure()

    def _give(self) -> None:
        """Take over what the model holds for the user to go on with."""
        self._params, self._optimizer = self._parameters.give(), self._parameters.optimizer

    def _book(self, params: Tree, loss: object, optimizer: object) -> None:
        """Take what the user's step made, and count it if there was one."""
        stepped = self._parameters.take(params, optimizer)
        announced, self._announced = self._announced, False
        if not announced:
            return
        if stepped:
            logged, self._logged = self._logged, {}
            given = logged.pop("loss", None)
            loss = given if loss is None else loss
            self._compute.stepped(self._parameters.dispatched(loss, logged))
        elif not self._told_no_step:
            self._told_no_step = True
            self._background.say(NO_STEP)

    def _raise_failure(self) -> None:
        """Raise the error that ended the learner, once its thread has told it."""
        if self.over or self._background.failed:
            self._background.came()
            self._background.join(ENDING_S)
            if self._background.error is not None:
                raise self._background.error
