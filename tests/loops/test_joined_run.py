"""What a user holds of a run: each step is booked once, and no end is silent."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.lab.toys.toy import NumpyTrainer
from islands.learner.boundary import Dispatched, StepData
from islands.learner.stepped_compute import SteppedCompute
from islands.loops import own_model
from islands.loops.background import Background
from islands.loops.join import enter, membership
from islands.loops.joined_run import JoinedRun
from islands.loops.own_model import NO_METRICS
from islands.protocol.errors import RefusedError, SettingsError, TaskError, TaskFailedError
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Version
from islands.protocol.learner.actions import AdoptValue, AllowSteps, ResetMoments
from islands.protocol.settings.run import RunSettings
from islands.run.learner_process import Membership
from islands.tasks.data.shards import ShardKey, ShardPlan
from messaging.codec.tensors import as_buffer

BATCH = 8
WHO = Incarnation(1, 1)


@dataclass(frozen=True)
class Step:
    given: float
    told: Mapping[str, object]

    def loss(self) -> float:
        return self.given

    def metrics(self) -> dict[str, float]:
        return {name: float(str(value)) for name, value in self.told.items()}


class Model(NumpyTrainer):
    """A model that does something whenever it adopts."""

    def __init__(self) -> None:
        super().__init__(2, batch_tokens=BATCH)
        self.setup()
        self.diverged = False
        self.adopting: Callable[[], object] = lambda: None

    def adopt(self, fragment: int, value: np.ndarray) -> None:
        super().adopt(fragment, value)
        self.adopting()

    def reset_moments(self) -> None:
        self.diverged = True


class Parameters:
    """The model, which is changed in place; what was given out is numbered."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.given = 0
        self.booked = 0
        self.stepped = False
        self.optimizer: object = None
        self.reported: list[tuple[object, dict[str, object]]] = []

    @property
    def diverged(self) -> bool:
        found, self.model.diverged = self.model.diverged, False
        return found

    def take(self, params: int, optimizer: object = None) -> bool:
        """Hold the optimizer's state alone: the model is changed in place."""
        self.optimizer = optimizer
        found, self.stepped = self.stepped, False
        return found

    def give(self) -> int:
        self.given += 1
        return self.given

    def checked(self, value: object, name: str) -> object:
        return value

    def dispatched(self, loss: object, metrics: Mapping[str, object] = NO_METRICS) -> Dispatched:
        self.booked += 1
        self.reported.append((loss, dict(metrics)))
        return Step(1.0 if loss is None else float(str(loss)), metrics)


class Alone(Background):
    """A background without a hub: its learner does what a test says when it is asked to leave."""

    def __init__(self) -> None:
        self.told: list[str] = []
        super().__init__(Membership((), "ana", None, None, self.told.append))  # type: ignore[arg-type]
        self.reasons: list[str] = []
        self.leaving: Callable[[], object] = lambda: None
        self.joining: Callable[[], object] = lambda: None

    def leave(self, reason: str) -> None:
        self.reasons.append(reason)
        self.leaving()

    def join(self, timeout_s: float) -> bool:
        self.joining()
        return True


class OwnLoop:
    """A run that a loop takes part in, with values of 1 and room for so many steps."""

    def __init__(
        self,
        parameters: own_model.Parameters[Any],
        steps: int = 10,
        records: ShardPlan | None = None,
        tokens: int = BATCH,
    ) -> None:
        self.background, self.layout = Alone(), parameters.model.layout
        data, settings = StepData(tokens), RunSettings(fragments=2)
        self.compute = SteppedCompute(parameters.model, settings, "ana", data)
        self.background.leaving = self.compute.stop
        self.adopt(1)
        self.compute.command(AllowSteps(steps * BATCH, (Lease(0, 0, 0),), 1))
        run = JoinedRun("ana", parameters, self.compute, self.background, records)
        self.run: JoinedRun[Any] = run

    def adopt(self, number: int) -> None:
        for index, fragment in enumerate(self.layout.fragments):
            value = as_buffer(np.full(fragment.size, number, np.float32))
            version = Version(1, number)
            self.compute.command(AdoptValue(FragmentIndex(index), version, 0.0, 1, WHO, value))


class Loop(OwnLoop):
    """A loop of a toy, of which a test sees what was booked."""

    def __init__(self, steps: int = 10, records: ShardPlan | None = None) -> None:
        self.model = Model()
        self.parameters = Parameters(self.model)
        super().__init__(self.parameters, steps, records)

    def step(self) -> None:
        batch, _ = next(iter(self.model.batches(ShardKey(0, 0), 0)))
        self.model.step(batch, 0.1)
        self.parameters.stepped = True

    @property
    def booked(self) -> int:
        return self.parameters.booked


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_a_step_is_booked_by_the_boundary_after_it(loop: Loop) -> None:
    params = loop.run.params
    with loop.run as run:
        for _ in range(3):
            params = run.boundary(params)
            loop.step()
    assert loop.booked == 2
    assert loop.background.reasons == ["its loop has ended"]


def test_what_a_loop_logs_belongs_to_the_step_that_is_booked_next(loop: Loop) -> None:
    run, params = loop.run, loop.run.params
    for logged, loss in (({"loss": 3.0, "accuracy": 0.5}, None), ({}, 2.0), ({"loss": 3.0}, 1.0)):
        params = run.boundary(params)
        loop.step()
        run.log(logged)
        run.log({"norm": 7.0})
        params = run.boundary(params, loss)
    assert loop.parameters.reported == [
        (3.0, {"accuracy": 0.5, "norm": 7.0}),
        (2.0, {"norm": 7.0}),
        (1.0, {"norm": 7.0}),
    ]
    run.leave()


@pytest.mark.parametrize(
    ("metrics", "says"),
    [({"a b": 1.0}, "named 'a b'"), ({f"m{i}": 1.0 for i in range(17)}, "there are 17 metrics")],
)
def test_metrics_that_cannot_be_reported_are_refused_at_once(
    loop: Loop, metrics: dict[str, object], says: str
) -> None:
    with pytest.raises(TaskError, match=says):
        loop.run.log(metrics)
    loop.run.leave()


def leaves(loop: Loop) -> None:
    loop.run.leave()


def fails(loop: Loop) -> None:
    with pytest.raises(KeyError), loop.run:
        raise KeyError


def ends(loop: Loop) -> None:
    with loop.run:
        pass


def is_over(loop: Loop) -> None:
    loop.compute.stop()


@pytest.mark.parametrize("end", [leaves, fails, ends, is_over])
def test_a_step_that_was_not_taken_is_not_booked_at_the_end(
    loop: Loop, end: Callable[[Loop], None]
) -> None:
    loop.run.boundary(loop.run.params)
    loop.step()
    params = loop.run.boundary(loop.run.params)
    end(loop)
    assert loop.run.over
    loop.run.boundary(params)
    loop.run.done(params)
    loop.run.leave()
    assert loop.booked == 1


def test_the_last_step_is_booked_by_done(loop: Loop) -> None:
    with loop.run as run:
        params = run.boundary(run.params)
        loop.step()
        loop.background.leaving = lambda: loop.adopt(7)
        loop.model.adopting = loop.compute.stop
        ended_with = run.done(params)
    assert loop.booked == 1
    assert ended_with == run.params == loop.parameters.given
    assert len(loop.background.reasons) == 1


def test_arrays_of_an_announced_step_are_left_alone_at_the_end(loop: Loop) -> None:
    adopted: list[bool] = []

    def come() -> None:
        loop.adopt(7)
        loop.model.adopting = note

    def note() -> None:
        adopted.append(True)
        loop.compute.stop()

    loop.background.leaving = come
    params = loop.run.boundary(loop.run.params)
    loop.run.leave("enough")
    assert adopted == []
    assert loop.run.params == params


def test_an_error_of_the_learner_is_raised_whenever_it_is_told(loop: Loop) -> None:
    error = RefusedError("another layout")
    loop.background.joining = lambda: setattr(loop.background, "error", error)
    params = loop.run.boundary(loop.run.params)
    loop.compute.stop()
    with pytest.raises(RefusedError, match="another layout"):
        loop.run.boundary(params)


def test_a_loop_that_ends_by_itself_hears_of_the_learners_error(loop: Loop) -> None:
    loop.background.error = RefusedError("another layout")
    with pytest.raises(RefusedError, match="another layout"), loop.run:
        pass
    loop = Loop()
    loop.background.error = RefusedError("another layout")
    with pytest.raises(KeyError, match="mine"), loop.run:
        raise KeyError("mine")


def test_whoever_asks_to_leave_within_a_boundary_leaves_after_it(loop: Loop) -> None:
    loop.background.leaving = lambda: None
    told: list[bool] = []

    def interrupted() -> None:
        loop.run.leave("SIGTERM")
        told.append(loop.run.over)
        loop.compute.stop()

    loop.model.adopting = interrupted
    loop.adopt(2)
    loop.run.boundary(loop.run.params)
    assert told[0] is False, "it returned at once"
    assert loop.background.reasons == ["SIGTERM"]
    assert loop.run.over


def test_a_boundary_that_was_asked_to_leave_announces_no_step(loop: Loop) -> None:
    adopted: list[bool] = []

    def note() -> None:
        adopted.append(True)
        loop.compute.stop()

    def interrupted() -> None:
        loop.model.adopting = note
        loop.run.leave("SIGTERM")

    loop.background.leaving = lambda: loop.adopt(7)
    loop.model.adopting = lambda: setattr(loop.model, "adopting", interrupted)
    loop.adopt(2)
    loop.run.boundary(loop.run.params)
    assert adopted == [True, True]
    assert loop.run.params == loop.parameters.given, "the user has what it ended with"
    assert loop.booked == 0


def test_an_error_in_a_boundary_ends_the_loop_and_nothing_is_adopted_after_it(loop: Loop) -> None:
    """What comes while the loop ends would be adopted into arrays in no known state."""
    loop.run.boundary(loop.run.params)
    adopted: list[bool] = []

    def deleted() -> None:
        loop.model.adopting = lambda: adopted.append(True)
        raise TaskFailedError("a was deleted")

    def come() -> None:
        loop.adopt(7)
        loop.compute.stop()

    loop.background.leaving = come
    loop.adopt(2)
    loop.model.adopting, given = deleted, loop.parameters.given
    with pytest.raises(TaskFailedError, match="a was deleted"), loop.run as run:
        run.boundary(run.params)
    assert (adopted, loop.parameters.given) == ([], given)
    assert loop.run.over
    assert loop.background.reasons == ["its loop ended by TaskFailedError"]


def test_a_model_that_does_not_fit_is_told_in_a_sentence(loop: Loop) -> None:

    def full() -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.")

    loop.adopt(2)
    loop.model.adopting = full
    with pytest.raises(TaskError, match=r"no memory for .* parameters .* more devices"), loop.run:
        loop.run.boundary(loop.run.params)


def test_after_a_divergence_no_step_is_booked_that_nobody_took(loop: Loop) -> None:
    params, loss = loop.run.boundary(loop.run.params), nan
    loop.step()
    loop.compute.command(ResetMoments())
    with pytest.raises(TaskFailedError, match="reset the optimizer's state"):
        loop.run.boundary(params, loss)
    assert loop.booked == 1
    loop.parameters.stepped = True  # they were copied meanwhile, so they are other arrays
    params = loop.run.boundary(loop.run.params, loss)
    assert loop.booked == 1
    loop.step()
    loop.run.boundary(params, 0.5)
    assert loop.booked == 2


def test_a_step_goes_on_with_the_optimizer_state_of_a_boundary(loop: Loop) -> None:
    loop.model.adopting = lambda: setattr(loop.parameters, "optimizer", "a peer's")

    def step(state: tuple[int, str]) -> tuple[int, str]:
        loop.step()
        return state

    wrapped = loop.run.around(
        step,
        get=lambda state: state[0],
        put=lambda state, params: (params, state[1]),
        get_optimizer=lambda state: state[1],
        put_optimizer=lambda state, found: (state[0], found),
    )
    assert wrapped((1, "own"))[1] == "own"
    loop.adopt(2)
    assert wrapped((1, "own"))[1] == "a peer's" == loop.run.optimizer


def test_whoever_has_stepped_beyond_the_end_is_given_that_back(loop: Loop) -> None:
    loop.compute.stop()
    params = loop.run.boundary(7, optimizer="own")
    assert (params, loop.run.optimizer) == (7, "own")
    assert loop.run.done(8, optimizer="last") == 8 == loop.run.params
    assert loop.run.optimizer == "last"
    assert loop.booked == 0


@pytest.mark.parametrize("tokens", [16.0, "16", 0])
def test_tokens_are_a_whole_number(tokens: object) -> None:
    who = membership("127.0.0.1:1", None, None, None, None, print)
    with pytest.raises(SettingsError, match="tokens_per_step is"):
        enter(who, tokens, lambda *_: Parameters(Model()))  # type: ignore[arg-type]


PLAN = ShardPlan(40, 2, seed=1)
"""The records of a run: forty in two shards."""


def itself(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    return indices


def test_a_batch_is_read_for_each_step_and_counts_once_it_is_booked() -> None:
    loop, read = Loop(records=PLAN), []
    batches = loop.run.batches(itself, 4)
    with loop.run as run:
        params = run.params
        for _ in range(3):
            params = run.boundary(params)
            read.append(next(batches))
            loop.step()
        assert loop.compute.boundary.data.leases == (Lease(0, 0, 8),)
    members = PLAN.members(ShardKey(0, 0))
    np.testing.assert_array_equal(np.concatenate(read), members[:12])
    assert list(batches) == [], "the run is over"


def test_batches_are_taken_after_a_boundary() -> None:
    with pytest.raises(TaskError, match="come to boundary first"):
        next(Loop(records=PLAN).run.batches(itself, 4))
    run = Loop(records=PLAN).run
    batches = run.batches(itself, 4)
    run.boundary(run.params)
    next(batches)
    with pytest.raises(TaskError, match="a second batch"):
        next(batches)
    with pytest.raises(TaskError, match="called once, before the first step"):
        run.batches(itself, 1)


def test_batches_are_not_asked_for_after_a_step() -> None:
    """That step had no batch of the leases, whose positions would count from another place."""
    loop = Loop(records=PLAN)
    params = loop.run.boundary(loop.run.params)
    loop.step()
    loop.run.boundary(params)
    with pytest.raises(TaskError, match="called once, before the first step"):
        loop.run.batches(itself, 4)


def test_batches_may_be_asked_for_after_the_first_boundary() -> None:
    loop, taken = Loop(3, PLAN), 0
    loop.run.boundary(loop.run.params)
    for batch in loop.run.batches(itself, 4):
        assert len(batch) == 4
        taken += 1
        loop.step()
        if taken == 3:
            loop.compute.stop()
        loop.run.boundary(loop.run.params)
    assert taken == 3


@pytest.mark.parametrize("ends", [False, True])
def test_batches_asked_for_after_a_boundary_wait_for_leases(*, ends: bool) -> None:
    loop = Loop(0, PLAN)
    loop.compute.command(AllowSteps(80, (Lease(0, 0, 18),), 1))
    loop.run.boundary(loop.run.params)
    if ends:
        loop.compute.stop()
    else:  # it is carried out at a boundary, or while one is waited in
        loop.compute.command(AllowSteps(80, (Lease(0, 0, 18), Lease(0, 1, 0)), 1))
    batch = next(loop.run.batches(itself, 4), None)
    wanted = [*PLAN.members(ShardKey(0, 0))[18:], *PLAN.members(ShardKey(0, 1))[:2]]
    assert batch is None if ends else batch is not None and batch.tolist() == wanted


def test_a_run_leases_what_its_layout_tells() -> None:
    with pytest.raises(SettingsError, match="this run leases no records"):
        Loop().run.batches(itself, 1)
    with pytest.raises(SettingsError, match="a batch has 9 records, and tokens_per_step is 8"):
        Loop(records=PLAN).run.batches(itself, 9)
