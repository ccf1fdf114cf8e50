"""All learners follow the fleet's clock, however fast they are, also while the syncer is away."""

import asyncio

import numpy as np
import pytest

from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.world import LearnerHost, NumpyTrainers, World
from islands.model.interfaces import PendingStep
from islands.protocol.identities import SYNCER
from islands.protocol.learner.schedule import FleetClock
from islands.protocol.settings.run import RunSettings
from messaging.simulation.virtual_time import run_virtual


def following(due_steps: float, *carried: tuple[int, float], epoch: int = 1) -> FleetClock:
    """A clock that was told these values, each after so many own steps."""
    clock = FleetClock(due_steps)
    for steps, told in carried:
        clock.carried(told, epoch=epoch, steps=steps)
    return clock


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


class RateKeeper(NumpyTrainer):
    """Keeps the rates of its steps; one over a long warm-up, they tell the clock."""

    kept: list[tuple[float, float]]

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        at_s = asyncio.get_running_loop().time()
        self.__dict__.setdefault("kept", []).append((at_s, learning_rate))
        return super().step(batch, learning_rate)


WARMUP = 10**6
"""Over so many steps the rate grows by one in its unit with every step of the clock."""

STEPS_S = {"ana": 0.1, "ben": 0.1, "cleo": 0.1, "fast": 0.02, "slow": 1.0}
HOSTS = {name: LearnerHost(step_s=step_s, noise=0.1) for name, step_s in STEPS_S.items()}


@pytest.mark.parametrize(("interval", "fragments"), [(24, 8), (12, 1), (4, 8)])
def test_in_a_run_all_rates_are_those_of_the_fleet(interval: int, fragments: int) -> None:
    """One learner is five times faster than the others, one ten times slower; the syncer restarts.

    From the second interval on every step's clock is that of the fleet within 5 %, the H/P steps
    by which the latter jumps, and the five steps for which the syncer is missed.
    """
    told: list[tuple[float, float]] = []
    settings = RunSettings(
        interval_steps=interval, fragments=fragments, learning_rate=1.0, warmup_steps=WARMUP
    )
    trainers = NumpyTrainers(settings, shards=64, kind=RateKeeper)
    world = World(settings, HOSTS, seed=3, tape=MemoryTape(), trainers=trainers)

    async def live() -> None:
        world.start_all()
        for number in range(110):
            await asyncio.sleep(0.1)
            state = world.syncer_state
            if state is not None:
                told.append((asyncio.get_running_loop().time(), state.core.durable.clock))
            if number == 70:
                await world.kill(SYNCER)
                world.start(SYNCER)
        await world.kill_all()

    run_virtual(live(), limit_s=100.0)
    fleet = np.array(told)
    assert fleet[-1, 1] > 60
    for name in HOSTS:
        trainer = world.trainers[name]
        assert isinstance(trainer, RateKeeper)
        at_s, rates = np.array(trainer.kept).T
        expected = np.interp(at_s, fleet[:, 0], fleet[:, 1])
        late = expected > 2 * interval
        off = np.abs(rates * (WARMUP + 1) - 1 - expected)[late]
        assert len(off) > 0
        assert np.all(off <= 0.05 * expected[late] + interval / fragments + 5), name
