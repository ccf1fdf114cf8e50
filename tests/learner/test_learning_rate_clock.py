"""All learners follow the fleet's clock, however fast they are, also while the syncer is away."""

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.world import LearnerHost, NumpyTrainers, World
from islands.model.interfaces import PendingStep
from islands.protocol.identities import SYNCER, FragmentIndex, Incarnation, Lease, Version
from islands.protocol.learner.actions import AdoptValue, AllowSteps
from islands.protocol.learner.learning_rate_clock import FleetClock
from islands.protocol.settings.run import RunSettings
from messaging.codec.tensors import as_buffer
from messaging.simulation.virtual_time import run_virtual
from tests.learner.bench import Copies, TrainedBoundary


def following(interval: int, *carried: tuple[int, float], epoch: int = 1) -> FleetClock:
    """A clock that was told these values, each after so many own steps."""
    clock = FleetClock(interval)
    for steps, told in carried:
        clock.carried(told, epoch=epoch, steps=steps)
    return clock


# ------------------------------------------------------------------------------- values by hand


def test_five_times_faster() -> None:
    clock = following(24, *((5 * k, float(k)) for k in range(30)))
    assert clock.at(145) == 29.0
    assert clock.at(152) == pytest.approx(30.4)


@pytest.mark.parametrize(("told", "believed"), [(5.0, 1.0), (0.2, 0.2)])
def test_the_first_ratio_is_not_believed_where_it_is_long(told: float, believed: float) -> None:
    clock = following(24, (0, 0.0), (1, told))
    assert clock.at(2) == pytest.approx(told + believed)


def test_ten_times_slower() -> None:
    clock = FleetClock(24)
    for told in range(301):
        clock.carried(float(told), epoch=1, steps=-(-told // 10))
    assert clock.at(30) == 300.0
    assert clock.at(31) == pytest.approx(310.0)


def test_alone() -> None:
    clock = following(24, *((k, float(k)) for k in range(50)))
    assert clock.at(49) == 49.0
    assert clock.at(52) == pytest.approx(52.0)


@pytest.mark.parametrize(("interval", "fragments"), [(500, 1), (24, 24), (24, 48), (24, 7)])
@pytest.mark.parametrize("faster", [0.1, 1.0, 5.0])
def test_at_every_interval_between_rounds(interval: int, fragments: int, faster: float) -> None:
    clock, told, off = FleetClock(interval), -1, 0.0
    for steps in range(int(4 * interval * faster) + 1):
        fleet = steps / faster
        while (told + 1) * interval / fragments <= fleet + 1e-9:
            told += 1
            clock.carried(told * interval / fragments, epoch=1, steps=steps)
        if fleet > 2 * interval:
            off = max(off, abs(clock.at(steps) - fleet))
    assert off <= max(1.0, 1 / faster) + interval / fragments * 0.01


def test_before_a_second_value_it_goes_no_further_than_an_interval() -> None:
    clock = following(500, (0, 0.0))
    assert [clock.at(steps) for steps in (0, 250, 500, 2499)] == [0.0, 250.0, 500.0, 500.0]
    clock.carried(500.0, epoch=1, steps=2500)
    assert clock.at(2750) == pytest.approx(550.0)


def test_while_the_syncer_is_away_it_goes_on_as_before() -> None:
    clock = following(24, *((5 * k, float(k)) for k in range(101)))
    assert clock.at(500 + 18_000) == pytest.approx(3_700.0)
    clock.carried(101.0, epoch=2, steps=18_500)
    assert clock.at(18_500) == 101.0
    assert clock.at(18_505) == pytest.approx(102.0)


def test_of_one_syncer_the_highest_value_counts() -> None:
    clock = following(24, (0, 0.0), (10, 10.0), (12, 9.0))
    assert clock.at(12) == pytest.approx(12.0)
    clock.carried(8.0, epoch=2, steps=13)
    assert clock.at(13) == 8.0
    clock.carried(40.0, epoch=1, steps=14)
    assert clock.at(14) == pytest.approx(9.0)


def test_a_standstill_does_not_make_it_slow() -> None:
    clock = following(24, *((k, float(k)) for k in range(50)))
    clock.stood_still()
    clock.carried(1049.0, epoch=1, steps=49)
    assert clock.at(59) == pytest.approx(1059.0)


@pytest.mark.parametrize("faster", [0.1, 1.0, 5.0])
@pytest.mark.parametrize(("interval", "fragments"), [(500, 1), (24, 24)])
@pytest.mark.parametrize("after_intervals", [0, 1, 6])
def test_one_step_of_an_hour_does_not_make_it_run_away(
    interval: int, fragments: int, faster: float, after_intervals: int
) -> None:
    """A compilation or a suspended process: meanwhile the fleet makes 3,600 steps.

    Afterwards it is off by no more than the interval that a learner may be off who does not know
    its ratio yet, and by a step where it knows it. Then the syncer goes away for an hour.
    """
    clock, every, told, steps, fleet = FleetClock(interval), interval / fragments, -1, 0, 0.0
    off, pause = 0.0, after_intervals * interval
    while fleet <= pause + 3_600 + 2 * interval:  # each turn is a step
        while (told + 1) * every <= fleet + 1e-9:
            told += 1
            clock.carried(told * every, epoch=1, steps=steps)
        if fleet > pause + every:
            off = max(off, clock.at(steps) - fleet)
        fleet += 3_600 if pause <= fleet < pause + 1 / faster else 1 / faster
        steps += 1
    assert off <= (interval if after_intervals < 6 else max(1, 1 / faster))
    gone = round(interval + 3_600 * max(faster, 1))
    ahead = clock.at(steps + gone) - clock.at(steps)
    assert 3_600 <= ahead <= (2 * interval + 3_600) * (1 if after_intervals == 6 else faster + 1)


def test_without_a_value_a_slow_learner_counts_its_own_steps() -> None:
    clock = following(24, *((k, 10.0 * k) for k in range(30)))
    assert [clock.at(29 + own) - 290 for own in (1, 2, 3, 103)] == pytest.approx(
        [10.0, 20.0, 24.6, 124.6]
    )


@pytest.mark.parametrize(("fleet_steps", "ratio"), [(100.0, 1.0), (3.0, 3.0 / 4.0)])
def test_the_first_ratio_counts_as_one_at_most(fleet_steps: float, ratio: float) -> None:
    clock = following(24, (0, 0.0), (4, fleet_steps))
    assert clock.at(5) == pytest.approx(fleet_steps + ratio)
    assert clock.at(14) == pytest.approx(fleet_steps + 10 * ratio)


def test_whoever_stands_still_twice_at_first_counts_its_own_steps() -> None:
    clock = following(10, (0, 0.0))
    clock.stood_still()
    clock.carried(1_000.0, epoch=1, steps=1)
    clock.carried(1_010.0, epoch=1, steps=11)
    clock.stood_still()
    clock.carried(2_010.0, epoch=1, steps=12)
    assert clock.at(13) == pytest.approx(2_011.0)


def test_who_stood_still_twice_goes_on_as_before() -> None:
    clock = following(500, *((500 * k, 500.0 * k) for k in range(5)))
    clock.stood_still()
    clock.carried(5_600.0, epoch=1, steps=2_010)
    clock.stood_still()
    clock.carried(6_100.0, epoch=1, steps=2_011)
    assert clock.at(2_511) == pytest.approx(6_600.0)


# --------------------------------------------------------------------------------- where it acts


class RateKeeper(NumpyTrainer):
    """Keeps the rates of its steps; one over a long warm-up, they tell the clock."""

    kept: list[tuple[float, float]]

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        try:
            at_s = asyncio.get_running_loop().time()
        except RuntimeError:
            at_s = 0.0
        self.__dict__.setdefault("kept", []).append((at_s, learning_rate))
        return super().step(batch, learning_rate)


WARMUP = 10**6
"""Over so many steps the rate grows by one in its unit with every step of the clock."""


def clock_of(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    return rates * (WARMUP + 1) - 1


def slow_growth(**changes: int) -> RunSettings:
    """Settings whose rate tells the clock."""
    return RunSettings(learning_rate=1.0, warmup_steps=WARMUP, **changes)  # type: ignore[arg-type]


def test_the_rate_of_a_step_is_that_of_the_fleets_clock() -> None:
    trainer = RateKeeper(2)
    settings = slow_growth(interval_steps=24, fragments=2)

    def ignore(_: object) -> None:
        pass

    boundary = TrainedBoundary(trainer, settings, report=ignore, copier=Copies())
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
    clocks = clock_of(np.array(trainer.kept)[-5:, 1])
    assert clocks.tolist() == pytest.approx([11.0, 11.2, 11.4, 11.6, 11.8], abs=1e-6)


HOSTS = {
    "ana": LearnerHost(step_s=0.1, noise=0.1),
    "ben": LearnerHost(step_s=0.1, noise=0.1),
    "cleo": LearnerHost(step_s=0.1, noise=0.1),
    "fast": LearnerHost(step_s=0.02, noise=0.1),
    "slow": LearnerHost(step_s=1.0, noise=0.1),
}


@pytest.mark.parametrize(("interval", "fragments"), [(24, 8), (12, 1), (4, 8)])
def test_in_a_run_all_rates_are_those_of_the_fleet(interval: int, fragments: int) -> None:
    """One learner is five times faster than the others, one ten times slower; the syncer restarts.

    From the second interval on every step's clock is that of the fleet within 5 %, the H/P steps
    by which the latter jumps, and the five steps for which the syncer is missed.
    """
    told: list[tuple[float, float]] = []
    settings = slow_growth(interval_steps=interval, fragments=fragments)
    world = World(
        settings,
        HOSTS,
        seed=3,
        tape=MemoryTape(),
        trainers=NumpyTrainers(settings, shards=64, kind=RateKeeper),
    )

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
        off = np.abs(clock_of(rates) - expected)[late]
        assert len(off) > 0
        assert np.all(off <= 0.05 * expected[late] + interval / fragments + 5), name
