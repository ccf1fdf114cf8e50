"""How long an outer step may be: the limit against eigenvalues, and a run that swings beyond it."""

import math
import re

import numpy as np
import pytest

from islands.layout.leaves import Unit
from islands.numerics.outer import merge_with, outer_optimizer
from islands.protocol.settings.choices import MergeRule
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.syncer.stability import (
    gain_max,
    learning_rate_max,
    overlong_because,
    step_limit,
)
from tests.numerics.oracle import AVERAGE, RDA

LINEAGE = OuterSettings(learning_rate=0.7, momentum=0.9)


def growth(outer: OuterSettings, gain: float) -> float:
    """Largest |eigenvalue| of (v, x) → the next (v, x), where the merged direction is gain · x."""
    rate, decay = outer.learning_rate, outer.momentum
    moved = np.array([decay, gain])
    step = np.array([0, gain]) + decay * moved if outer.nesterov else moved
    return float(np.abs(np.linalg.eigvals([moved, np.array([0, 1]) - rate * step])).max())


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("gain", [1.0, 2.0, 64.0])
def test_the_limit_is_where_steps_begin_to_grow(
    gain: float, momentum: float, *, nesterov: bool
) -> None:
    limit = step_limit(OuterSettings(1.0, momentum, nesterov)) / gain
    assert growth(OuterSettings(limit * 0.999, momentum, nesterov), gain) < 1
    assert growth(OuterSettings(limit * 1.001, momentum, nesterov), gain) > 1


def test_the_limits_of_the_usual_settings() -> None:
    assert step_limit(LINEAGE) == pytest.approx(3.8 / 2.8)
    assert step_limit(OuterSettings()) == 2
    assert [gain_max(RDA, count) for count in (0, 1, 4, 4096)] == [1, 1, 2, 64]
    assert [gain_max(AVERAGE, count) for count in (1, 4096)] == [1, 1]
    assert learning_rate_max(OuterSettings(), RDA, 4) == 1


@pytest.mark.parametrize(
    ("outer", "merge", "learners", "told"),
    [
        (OuterSettings(), RDA, 3, None),
        (LINEAGE, RDA, 3, None),
        (LINEAGE, AVERAGE, 4096, None),
        (OuterSettings(), RDA, 4, "2 times .* set outer.learning_rate to 0.9 or less, or merge"),
        (LINEAGE, RDA, 4, "2 times .* set outer.momentum to 0 and outer.learning_rate to 0.9 or"),
        (OuterSettings(), RDA, 8, "2.83 times .* outer.learning_rate to 0.63 or less, or merge"),
        (OuterSettings(), RDA, 4096, "64 times .* outer.learning_rate to 0.028 or less, or merge"),
        (
            OuterSettings(),
            MergeRule.RADIAL_DIRECTIONAL,
            4,
            "2 times .* set outer.learning_rate to 0.9 or less",
        ),
        (OuterSettings(50.0, optimizer="lion"), RDA, 4096, None),
        (OuterSettings(2.5), AVERAGE, 2, "is 2.5 with momentum 0: .* outer.learning_rate to 1 or"),
    ],
)
def test_what_may_swing_is_told_with_what_to_set(
    outer: OuterSettings, merge: MergeRule, learners: int, told: str | None
) -> None:
    found = overlong_because(outer, merge, learners)
    assert (found is None) == (told is None)
    assert told is None or re.search(told, str(found))


@pytest.mark.parametrize("learners", [1, 4, 9, 64, 4096])
def test_what_is_advised_is_stable(learners: int) -> None:
    found = overlong_because(OuterSettings(50.0), RDA, learners)
    advised = re.search(r"learning_rate to (\S+) or less", str(found))
    assert advised
    assert overlong_because(OuterSettings(float(advised[1])), RDA, learners) is None


# --- a run ----------------------------------------------------------------------------------------

SIZE, SATURATED = 2048, 128
SPREAD = 1.0


def end(outer: OuterSettings, learners: int, merge: MergeRule = RDA) -> tuple[float, float]:
    """Distance from the optimum, and mean cosine, over the last of many merges of a quadratic.

    In a sixteenth of the directions learners reach the optimum within H (a little noise aside); in
    the others they differ by chance, and move by a fiftieth of the distance.
    """
    rng = np.random.default_rng(0)
    units = (Unit(0, SIZE, merge),)
    fast = np.arange(SIZE) < SATURATED
    value = np.where(fast, 1.0, 0.0).astype(np.float32)
    optimizer = outer_optimizer(outer)
    state = optimizer.init(value)
    distances, cosines = [], []
    for _ in range(200):
        seen = np.where(fast, 1.0, 0.02) * value
        noise = np.where(fast, 0.1, SPREAD) * rng.standard_normal((learners, SIZE))
        contributions = list((seen + noise).astype(np.float32))
        step = merge_with(optimizer, value, state, contributions, [1.0] * learners, units)
        value, state = step.value, step.state
        distances.append(math.sqrt(float(np.square(value[fast]).mean())))
        cosines.append(step.cosine_to_previous)
    return float(np.mean(distances[-100:])), float(np.mean(cosines[-100:]))


def test_a_step_beyond_the_limit_swings_for_ever() -> None:
    plain, _ = end(LINEAGE, 4, AVERAGE)
    swinging, cosine = end(LINEAGE, 4)
    assert swinging > 5 * plain
    assert cosine < -0.05


@pytest.mark.parametrize(("learners", "rate"), [(2, 1.0), (4, 0.9), (9, 0.6), (64, 0.22)])
def test_a_step_within_the_limit_settles(learners: int, rate: float) -> None:
    settled, cosine = end(OuterSettings(rate, 0.0), learners)
    assert overlong_because(OuterSettings(rate, 0.0), RDA, learners) is None
    assert settled < 3 * end(OuterSettings(), learners, AVERAGE)[0]
    assert cosine > -0.05
