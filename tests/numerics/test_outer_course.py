"""SGD whose rate and momentum change with the number of merges, by hand and by the oracle."""

import numpy as np
import pytest

from islands.layout.leaves import Unit
from islands.numerics.outer import OuterState, Sgd, merge_with
from islands.numerics.outer_course import Course
from islands.protocol.errors import InvariantError
from islands.protocol.settings.run import OuterSchedule, OuterSettings
from tests.numerics import oracle

LINEAR, COSINE = OuterSchedule.LINEAR, OuterSchedule.COSINE
SIZE = 300
UNITS = (Unit(0, 50, "average"), Unit(50, 250, "rda"))
VALUE = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
DELTAS = np.random.default_rng(1).standard_normal((9, 3, SIZE)).astype(np.float32)

COURSES = {
    "warm-up": OuterSettings(0.5, 0.8, momentum_warmup=4),
    "restarts": OuterSettings(0.5, 0.8, restart_every=3),
    "restarts at once": OuterSettings(0.5, 0.8, nesterov=False, restart_every=1),
    "linear": OuterSettings(0.5, 0.8, schedule=LINEAR, schedule_merges=6),
    "cosine": OuterSettings(
        *(0.5, 0.8),
        momentum_warmup=2,
        restart_every=4,
        schedule=COSINE,
        schedule_merges=5,
        final_learning_rate_share=0.0,
    ),
}


def test_a_momentum_warms_up_by_hand() -> None:
    """Over 2 merges, μ is 0, 0.25, 0.5: with Δ = 4 and η = 1 the steps are 4, 5.25, 7.25.

    v = 4; step 4 + 0. v = 0.25·4 + 4 = 5; step 4 + 0.25·5. v = 0.5·5 + 4 = 6.5; step 4 + 0.5·6.5.
    """
    optimizer = Sgd.of(OuterSettings(1.0, 0.5, momentum_warmup=2))
    delta, value = np.array([4.0], np.float32), np.zeros(1, np.float32)
    state, steps = optimizer.init(value), []
    for _ in range(3):
        stepped, state = optimizer.update(delta, state, value)
        steps.append(float(value[0] - stepped[0]))
        value = stepped
    assert steps == [4.0, 5.25, 7.25]


def test_a_momentum_restarts_by_hand() -> None:
    """Every 2 merges: with Δ = 4, η = 1, μ = 0.5 the steps are 6 and 7, and then 6 and 7 again."""
    optimizer = Sgd.of(OuterSettings(1.0, 0.5, restart_every=2))
    delta, value = np.array([4.0], np.float32), np.zeros(1, np.float32)
    state, values = optimizer.init(value), []
    for _ in range(4):
        value, state = optimizer.update(delta, state, value)
        values.append(float(value[0]))
    assert values == [-6.0, -13.0, -19.0, -26.0]


def test_rates_by_hand() -> None:
    """From η at the first merge to its share after the last one, and then no further."""
    linear = Course(schedule=LINEAR, schedule_merges=4, final_share=0.5)
    assert [linear.rate(0.8, n) for n in (0, 1, 4, 100)] == pytest.approx([0.8, 0.7, 0.4, 0.4])
    cosine = Course(schedule=COSINE, schedule_merges=4, final_share=0.0)
    assert [cosine.rate(0.8, n) for n in (0, 2, 4, 5)] == pytest.approx([0.8, 0.4, 0.0, 0.0])
    assert Course(schedule_merges=1).rate(0.8, 9) == 0.8


@pytest.mark.parametrize("settings", COURSES.values(), ids=COURSES)
def test_any_course_agrees_with_the_oracle(settings: OuterSettings) -> None:
    """Nine merges of three contributions in float64, from the formulas alone."""
    optimizer = Sgd.of(settings)
    value, state = VALUE, optimizer.init(VALUE)
    judge, memory = VALUE.astype(float), oracle.Memory()
    for deltas in DELTAS:
        direction = oracle.merge(list(deltas), [1.0, 2.0, 3.0], UNITS)
        judge, memory = oracle.outer_step(settings, judge, memory, direction)
        step = merge_with(optimizer, value, state, list(deltas), [1.0, 2.0, 3.0], UNITS)
        value, state = step.value, step.state
        np.testing.assert_allclose(value, judge, rtol=1e-5, atol=1e-5)
    assert int(state["merges"]) == len(DELTAS)


@pytest.mark.parametrize("settings", COURSES.values(), ids=COURSES)
def test_the_fused_path_gives_the_bits_of_the_plain_one(settings: OuterSettings) -> None:
    """One contribution, so that the direction is exact: also where the rate changes."""
    optimizer = Sgd.of(settings)
    value, state = VALUE, optimizer.init(VALUE)
    plain_value, plain_state = VALUE, optimizer.init(VALUE)
    for deltas in DELTAS:
        step = merge_with(optimizer, value, state, [deltas[0]], [3.0], UNITS)
        plain_value, plain_state = optimizer.update(deltas[0], plain_state, plain_value)
        value, state = step.value, step.state
        np.testing.assert_array_equal(value, plain_value)
        np.testing.assert_array_equal(state["momentum"], plain_state["momentum"])


def test_a_unit_that_is_not_stepped_follows_no_course() -> None:
    """A running average is published as it was merged, whatever the rate is by now."""
    units = (Unit(0, 200, "rda"), Unit(200, 100, "average", stepped=False))
    optimizer = Sgd.of(COURSES["cosine"])
    value, state = VALUE, optimizer.init(VALUE)
    for deltas in DELTAS:
        step = merge_with(optimizer, value, state, list(deltas), [1.0] * 3, units)
        wanted = value[200:] - oracle.average([delta[200:] for delta in deltas], [1.0] * 3)
        np.testing.assert_allclose(step.value[200:], wanted, rtol=1e-5, atol=1e-5)
        value, state = step.value, step.state


def test_without_a_course_the_state_is_the_momentum_alone() -> None:
    """Journals of runs before there were courses load, and their bits do not change."""
    assert Course.of(OuterSettings(0.7, 0.9)) is None
    assert list(Sgd.of(OuterSettings(0.7, 0.9)).init(VALUE)) == ["momentum"]


def test_a_state_of_another_course_is_refused() -> None:
    """A count where none is expected, and none where one is."""
    plain, counted = Sgd(), Sgd.of(COURSES["warm-up"])
    wrong: OuterState = {"momentum": np.zeros_like(VALUE), "other": np.zeros((), np.int64)}
    for optimizer, state in (
        (plain, counted.init(VALUE)),
        (counted, plain.init(VALUE)),
        (counted, wrong),
    ):
        with pytest.raises(InvariantError):
            optimizer.update(VALUE, state, VALUE)
    with pytest.raises(InvariantError):
        Course.of(OuterSettings(schedule=LINEAR))
