"""Figures that people see: smoothed by steps, kept from the beginning, in an order one expects."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise, product
from math import inf

import msgspec
import pytest

from islands.protocol.messages.control import COUNT_MAX, GAP_BINS, StepFigures
from islands.run.records.figures import (
    AWAY_LEAST,
    GONE_PROCESSES_KEPT,
    POINTS_KEPT,
    SPEED_SAMPLES,
    Curve,
    LearnerFigures,
    RunFigures,
    Speed,
    WorkTime,
    in_order,
)


@pytest.mark.parametrize("per_report", [1, 7, 100])
def test_a_loss_is_smoothed_by_steps_however_many_a_report_is_about(per_report: int) -> None:
    learner = LearnerFigures()
    learner.steps = 1
    learner.smooth(8.0, {})
    for _ in range(700 // per_report):
        learner.steps += per_report
        learner.smooth(2.0, {})
    assert learner.loss == pytest.approx(2.0 + 6.0 * 0.95**700)


def test_a_report_without_a_step_smooths_nothing() -> None:
    learner = LearnerFigures(steps=1)
    learner.smooth(8.0, {})
    learner.steps = 2
    for _ in range(300):
        learner.smooth(2.0, {})
    assert learner.loss == pytest.approx(8.0 - 0.05 * 6.0)


def test_the_loss_of_a_run_is_the_mean_of_those_who_train() -> None:
    figures = RunFigures({name: LearnerFigures(loss=loss) for name, loss in LOSSES.items()})
    told = []
    for name in [*LOSSES, *LOSSES]:
        figures.update_loss(name)
        told.append(figures.loss)
    assert told[2:] == [3.0] * 4
    figures.learners["a"].loss = None
    figures.update_loss("a")
    assert figures.loss == 4.0
    figures.learners["b"].loss = float("nan")
    figures.update_loss("b")
    assert figures.loss == 5.0


LOSSES = {"a": 1.0, "b": 3.0, "c": 5.0}


def test_a_huge_loss_leaves_no_trace() -> None:
    figures = RunFigures({"a": LearnerFigures(loss=2.0), "b": LearnerFigures(loss=1e300)})
    for name in ("a", "b"):
        figures.update_loss(name)
    figures.learners["b"].loss = 4.0
    figures.update_loss("b")
    assert figures.loss == 3.0


def came_and_went(figures: RunFigures, name: str, steps: int) -> None:
    """A learner of this name comes, tells that it did so many steps, and leaves."""
    told = StepFigures(name, steps, 8 * steps, 1.0, 0.1, 2.0, 0.0, 0.0, ((-100, steps),), 0.1, 5, 6)
    figures.admit(name).add_report(told, inf)
    figures.depart(name)


def test_of_machines_that_never_come_back_totals_remain() -> None:
    figures, names = RunFigures(), 20 * AWAY_LEAST
    for number in range(names):
        came_and_went(figures, f"pod-{number}", 3)
    assert len(figures.learners) == len(figures.away) == AWAY_LEAST
    assert figures.gone.names == names - AWAY_LEAST
    assert (figures.tokens, figures.gaps.count) == (24 * names, 3 * names)
    assert sum(learner.bytes_up for learner in figures.everybody()) == 5 * names
    assert len(figures.gone.processes) == GONE_PROCESSES_KEPT
    assert f"pod-{names - 1}" in figures.learners


def test_a_large_fleet_that_was_cut_off_finds_its_rows_again() -> None:
    figures, fleet = RunFigures(), [f"learner-{number}" for number in range(4 * AWAY_LEAST)]
    for name in fleet:
        figures.admit(name).steps = 7
    for name in fleet:
        figures.depart(name)
    assert [figures.admit(name).steps for name in fleet] == [7] * len(fleet)
    assert (figures.gone.names, figures.away) == (0, {})


def test_a_yield_is_a_share() -> None:
    figures = RunFigures(merged_tokens=2112)
    assert figures.yield_of(3, 0) == 0.0
    assert figures.yield_of(3, 100) == 1.0
    assert figures.yield_of(3, 1408) == 0.5


@pytest.mark.parametrize("count", [1, POINTS_KEPT - 1, POINTS_KEPT, 100_000])
def test_a_curve_is_kept_from_its_beginning_to_its_end(count: int) -> None:
    curve = Curve()
    for x in range(count):
        curve.add(x, float(count - x))
    curve = msgspec.json.decode(msgspec.json.encode(curve), type=Curve)
    points = curve.all()
    assert (points[0], points[-1]) == ((0, count), (count - 1, 1.0))
    assert len(points) <= POINTS_KEPT
    gaps = {b[0] - a[0] for a, b in pairwise(points[:-1])}
    assert len(gaps) <= 1


def test_a_point_that_is_no_number_is_none() -> None:
    curve = Curve()
    for value in (float("inf"), float("nan"), 2.0):
        curve.add(0.0, value)
    assert curve.all() == [(0.0, 2.0)]


@pytest.mark.parametrize("step_s", [0.001, 0.3, 20.0, 300.0])
def test_a_speed_is_that_of_the_steps_however_long_they_take(step_s: float) -> None:
    speed = Speed()
    steps = min(30_000, int(600 / step_s) + 4)
    for step in range(steps):
        speed.add(step * step_s, 8.0 * step)
    assert speed.per_s((steps - 0.5) * step_s) == pytest.approx(8.0 / step_s, rel=0.05)
    assert len(speed.samples) <= SPEED_SAMPLES


def test_a_speed_dwindles_while_nothing_comes() -> None:
    speed = Speed()
    for at_s in range(10):
        speed.add(float(at_s), 100.0 * at_s)
    speed.add(9.5, 900.0)
    assert speed.per_s(9.5) == pytest.approx(100.0)
    assert speed.per_s(900.0) == pytest.approx(1.0)


def test_a_pause_is_no_work() -> None:
    work = WorkTime(counted_s=5.0)
    assert work.total_s(100.0) == 5.0, "nothing is trained yet"
    work.begin(100.0)
    work.begin(101.0)
    work.pause(110.0, paused=True)
    work.begin(120.0)
    assert work.total_s(130.0) == 15.0
    work.pause(130.0, paused=False)
    assert work.total_s(131.0) == 16.0


def test_the_tenth_learner_comes_after_the_second() -> None:
    names = ["learner-10", "learner-2", "learner-1", "7", "b", "learner-2b", "learner"]
    ordered = ["7", "b", "learner", "learner-1", "learner-2", "learner-2b", "learner-10"]
    assert sorted(names, key=in_order) == ordered


def test_the_largest_reports_of_many_names_take_bounded_memory() -> None:
    learners, each = [LearnerFigures() for _ in range(5)], COUNT_MAX // len(GAP_BINS)
    tracemalloc.start()
    try:
        for number, learner in product(range(12), learners):
            bins = tuple((index, each) for index in GAP_BINS)
            told = StepFigures(f"{number}", 1, 10, 0.1, 0.1, 2.0, 0.0, 0.0, bins, 1.0, 1, 1)
            assert told.believable
            assert not replace(told, process="p" * 65).believable
            assert not replace(told, gap_bins=((1, 1), (1, 1))).believable  # each bin once
            learner.add_report(told, inf)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < len(learners) * 2**20
