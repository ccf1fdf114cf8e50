"""When chips step and when they stall, by failures at known times and by drawn ones."""

import random
from collections.abc import Iterable
from itertools import pairwise
from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.lab.experiments.chips import Chips, Counted, Device, ElasticChips, RigidChips
from islands.lab.experiments.fleet import Figures, FleetRun, Group, overlaps

LEARNER = Chips(1024.0)
YEAR_S = LEARNER.mtbi_s


class Told(random.Random):
    """Draws the waiting times that it is told, and then never again."""

    def __init__(self, waits_s: Iterable[float]) -> None:
        super().__init__()
        self._waits_s = iter(waits_s)

    def expovariate(self, lambd: float = 1.0) -> float:
        assert lambd > 0
        return next(self._waits_s, inf)


def elastic(*waits_s: float, chips: Chips = LEARNER) -> tuple[ElasticChips, Counted]:
    """Chips that fail after these times, each since the last event."""
    counted = Counted()
    return ElasticChips(chips, Told(waits_s), counted), counted


def steps(device: Device, until_s: float, step_s: float = 10.0) -> float:
    """Take steps one after another; returns when the last one ended."""
    now_s = 0.0
    while now_s < until_s:
        now_s = device.step(now_s, step_s)
    return now_s


def test_a_failure_stalls_its_step_and_takes_a_slice_away() -> None:
    device, counted = elastic(4.0)
    assert device.step(0.0, 10.0) == 28.0
    assert counted.still == [(4.0, 22.0)]
    assert counted.chip_s == 4 * 1024 + 6 * 768


def test_a_slice_that_is_ready_comes_back_and_stalls_the_others() -> None:
    device, counted = elastic(4.0)
    steps(device, 700.0)
    assert counted.still == [(4.0, 22.0), (604.0, 620.0)]
    before = counted.chip_s
    device.step(1000.0, 10.0)
    assert counted.chip_s - before == 10 * 1024


def test_failures_within_a_stall_do_not_lengthen_it() -> None:
    device, counted = elastic(4.0, 5.0, 5.0)
    assert device.step(0.0, 10.0) == 28.0
    assert counted.still == [(4.0, 22.0)]
    assert counted.chip_s == 4 * 1024 + 6 * 256


def test_slices_come_back_together_and_not_too_often() -> None:
    device, counted = elastic(10.0, 100.0, 50.0)
    steps(device, 1100.0)
    assert counted.still[3:] == [(610.0, 626.0), (910.0, 926.0)]


def test_what_happens_while_no_step_is_taken_counts_all_the_same() -> None:
    device, counted = elastic(4.0)
    assert device.step(100.0, 10.0) == 110.0
    assert counted.still == [(0.0, 100.0)]
    assert counted.chip_s == 10 * 768


def test_a_wait_of_the_learner_is_as_still_as_a_stall_of_its_chips() -> None:
    cell = FleetRun((Group(2),), warmup_s=0.0, measured_s=60.0)
    fleet = [Counted(until_s=60.0), Counted(until_s=60.0)]
    for counted, begins_s in zip(fleet, [(0.0, 10.0, 50.0), (0.0, 30.0, 55.0)], strict=True):
        device = ElasticChips(Chips(1.0), Told([]), counted)
        for begin_s in begins_s:
            device.step(begin_s, 10.0)
    assert [each.still for each in fleet] == [[(20.0, 50.0)], [(10.0, 30.0), (40.0, 55.0)]]
    figures = Figures.of(cell, [[each] for each in fleet])
    assert figures.goodput == pytest.approx((30 + 25) / 120)
    assert figures.uptime == pytest.approx(1 - (10 + 10) / 60)


def test_whoever_never_steps_is_still_from_beginning_to_end() -> None:
    cell = FleetRun((Group(1),), warmup_s=5.0, measured_s=10.0)
    figures = Figures.of(cell, [[Counted(from_s=5.0, until_s=15.0)]])
    assert (figures.goodput, figures.uptime, figures.stalls_s) == (0.0, 0.0, (((5.0, 15.0),),))


def test_chips_that_are_not_elastic_end_their_step_and_start_again() -> None:
    """A failure in a step is found at its end; one that would come later is drawn anew."""
    counted = Counted()
    device = RigidChips(LEARNER, Told([4.0, 11.0, 10.0]), counted)
    assert device.step(0.0, 10.0) == 96.0
    assert device.step(96.0, 10.0) == 106.0
    assert device.step(106.0, 10.0) == 202.0
    assert device.step(202.0, 10.0) == 212.0
    assert counted.still == [(10.0, 96.0), (116.0, 202.0)]
    assert counted.chip_s == 40 * 1024


def test_only_the_measured_time_counts() -> None:
    counted = Counted(from_s=10.0, until_s=20.0)
    counted.step(5.0, 12.0, 8.0)
    counted.step(18.0, 30.0, 8.0)
    counted.step(40.0, 50.0, 8.0)
    assert counted.chip_s == 8 * 4
    assert counted.still == [(12.0, 18.0)]


@given(
    seed=st.integers(0, 2**32),
    count=st.floats(1e5, 3e6),
    step_s=st.floats(0.001, 300.0),
    rigid=st.booleans(),
)
def test_steps_and_stalls_are_all_of_the_time(
    *, seed: int, count: float, step_s: float, rigid: bool
) -> None:
    counted, kind = Counted(), RigidChips if rigid else ElasticChips
    chips = Chips(count)
    device, now_s, taken = kind(chips, random.Random(seed), counted), 0.0, 0
    for _ in range(60):
        after_s = device.step(now_s, step_s)
        assert after_s >= now_s + step_s * (1 - 1e-9)
        now_s, taken = after_s, taken + 1
    stalled_s = sum(stop - start for start, stop in counted.still)
    stalled_s += now_s - counted.stepped[-1][1]  # of chips that start again after the last step
    assert stalled_s == pytest.approx(now_s - taken * step_s, rel=1e-6, abs=1e-4)
    assert 0 < counted.chip_s <= count * taken * step_s * (1 + 1e-9)
    assert all(one[1] < other[0] for one, other in pairwise(counted.still))


def test_goodput_is_what_the_rates_say() -> None:
    counted = Counted()
    until_s = steps(RigidChips(Chips(1.2e6), random.Random(0), counted), 4e5)
    fails = 1 - exp(-10 * 1.2e6 / YEAR_S)
    expected = 10 / (10 + fails * LEARNER.restart_s)
    assert counted.chip_s / (1.2e6 * until_s) == pytest.approx(expected, rel=0.03)


intervals = st.lists(st.integers(0, 60), max_size=12, unique=True).map(
    lambda ends: [(a, b) for a, b in zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False)]
)


@given(some=intervals, others=intervals)
def test_overlaps_are_what_both_have(
    some: list[tuple[float, float]], others: list[tuple[float, float]]
) -> None:
    def inside(spans: list[tuple[float, float]], at: float) -> bool:
        return any(start <= at < stop for start, stop in spans)

    both = overlaps(some, others)
    for tenth in range(0, 600, 5):
        at = tenth / 10
        assert inside(both, at) == (inside(some, at) and inside(others, at))
