"""A learner follows the fleet's clock, however fast it is, also while the syncer is away."""

import numpy as np
import pytest

from islands.lab.toys.toy import NumpyTrainer
from islands.model.interfaces import PendingStep
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Version
from islands.protocol.learner.actions import AdoptValue, AllowSteps
from islands.protocol.learner.learning_rate_clock import FleetClock
from islands.protocol.settings.run import RunSettings
from messaging.codec.tensors import as_buffer
from tests.learner.bench import Copies, TrainedBoundary


def following(due_steps: float, *carried: tuple[int, float], epoch: int = 1) -> FleetClock:
    """A clock that was told these values, each after so many own steps."""
    clock = FleetClock(due_steps)
    for steps, told in carried:
        clock.carried(told, epoch=epoch, steps=steps)
    return clock


# ------------------------------------------------------------------------------- values by hand


def test_before_the_first_value_own_steps_count() -> None:
    assert FleetClock(3.0).at(7) == 7.0


def test_between_two_values_it_goes_on_with_own_steps_up_to_the_next_value() -> None:
    clock = following(3.0, (10, 50.0))
    assert [clock.at(steps) for steps in (10, 11, 13, 14, 500)] == [50.0, 51.0, 53.0, 53.0, 53.0]


@pytest.mark.parametrize(("interval", "fragments"), [(500, 1), (24, 24), (24, 48), (24, 7)])
@pytest.mark.parametrize("faster", [0.1, 1.0, 5.0])
def test_it_is_never_off_by_more_than_a_round_and_an_own_step(
    interval: int, fragments: int, faster: float
) -> None:
    every = interval / fragments
    clock, told, off = FleetClock(every), -1, 0.0
    for steps in range(int(4 * interval * faster) + 1):
        fleet = steps / faster
        while (told + 1) * every <= fleet + 1e-9:
            told += 1
            clock.carried(told * every, epoch=1, steps=steps)
        off = max(off, abs(clock.at(steps) - fleet))
    assert off <= every + 1e-6


def test_of_one_syncer_the_highest_value_counts() -> None:
    clock = following(24, (0, 0.0), (10, 10.0), (12, 9.0))
    assert clock.at(12) == 12.0
    clock.carried(8.0, epoch=2, steps=13)
    assert clock.at(13) == 8.0
    clock.carried(40.0, epoch=1, steps=14)
    assert clock.at(14) == 9.0


def test_after_a_new_beginning_any_value_counts() -> None:
    clock = following(24, (0, 90.0), epoch=7)
    clock.begin_anew()
    clock.carried(4.0, epoch=1, steps=3)
    assert clock.at(3) == 4.0


# --------------------------------------------------------------------------------- where it acts


class RateKeeper(NumpyTrainer):
    """Keeps the rates of its steps; one over a long warm-up, they tell the clock."""

    def __init__(self) -> None:
        super().__init__(2)
        self.rates: list[float] = []

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        self.rates.append(learning_rate)
        return super().step(batch, learning_rate)


WARMUP = 10**6
"""Over so many steps the rate grows by one in its unit with every step of the clock."""


def test_the_rate_of_a_step_is_that_of_the_fleets_clock() -> None:
    trainer = RateKeeper()
    settings = RunSettings(interval_steps=24, fragments=2, learning_rate=1.0, warmup_steps=WARMUP)
    boundary = TrainedBoundary(trainer, settings, report=lambda _: None, copier=Copies())
    boundary.commands.append(AllowSteps(10**6, tuple(Lease(0, shard, 0) for shard in range(8))))
    value = as_buffer(np.zeros(trainer.layout.fragments[0].size, np.float32))
    for number, told in enumerate((9.0, 10.0, 11.0)):
        command = AdoptValue(
            FragmentIndex(0), Version(1, number), told, 1, Incarnation(1, 1), value
        )
        boundary.commands.append(command)
        boundary.carry_out()
        for _ in range(5):
            assert boundary.has_work()
            boundary.dispatch()
    clocks = [rate * (WARMUP + 1) - 1 for rate in trainer.rates[-5:]]
    assert clocks == pytest.approx([11.0, 12.0, 13.0, 14.0, 15.0], abs=1e-6)
