"""Intervals and verdicts, held against cases whose answer is known."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from islands.study.statistics import SEEDS_LEAST, Verdict, compare, interval

BASELINE = {0: 2.0, 1: 2.2, 2: 1.9, 3: 2.1}


def times(factors: list[float]) -> dict[int, float]:
    """The baseline's metric, each seed by a factor of its own."""
    return {seed: BASELINE[seed] * factor for seed, factor in enumerate(factors)}


@pytest.mark.parametrize(
    ("factors", "verdict"),
    [
        ([1.001, 1.003, 1.002, 1.0], Verdict.WITHIN),
        ([1.05, 1.06, 1.04, 1.05], Verdict.WORSE),
        ([0.95, 0.96, 0.97, 0.95], Verdict.BETTER),
        ([0.98, 1.04, 0.99, 1.03], Verdict.UNDECIDED),
    ],
)
def test_the_verdict_follows_from_the_interval(factors: list[float], verdict: Verdict) -> None:
    """Within 1 %: worse only if the whole interval is, within only if none of it is beyond."""
    found = compare(times(factors), BASELINE, within=0.01)
    assert found.verdict is verdict
    assert found.worse_by == pytest.approx(np.mean(factors) - 1)
    assert found.low is not None
    assert found.high is not None
    assert found.worse_by is not None
    assert found.low <= found.worse_by <= found.high
    assert found.low >= min(factors) - 1 - 1e-9
    assert found.high <= max(factors) - 1 + 1e-9


def test_more_may_be_better() -> None:
    """Of an accuracy, more than the baseline's is better."""
    found = compare(times([1.1, 1.1, 1.1]), BASELINE, within=0.01, higher_is_better=True)
    assert found.verdict is Verdict.BETTER
    assert found.worse_by == pytest.approx(-0.1)


def test_two_seeds_decide_nothing() -> None:
    """However far apart; the difference is told nevertheless."""
    found = compare(times([1.5, 1.5]), BASELINE, within=0.01)
    assert (found.verdict, found.low, found.high) == (Verdict.UNDECIDED, None, None)
    assert found.worse_by == pytest.approx(0.5)


def test_seeds_are_paired() -> None:
    """A baseline that varies by 10 % from seed to seed does not hide a difference of 1 %."""
    found = compare(times([1.02, 1.021, 1.019, 1.02]), BASELINE, within=0.01)
    assert found.verdict is Verdict.WORSE


def test_without_a_common_seed_nothing_is_compared() -> None:
    """Such as while a study is under way."""
    found = compare({7: 1.0}, BASELINE, within=0.01)
    assert (found.mean, found.worse_by, found.verdict) == (1.0, None, Verdict.UNDECIDED)


def test_the_interval_is_that_of_the_mean() -> None:
    """Against the normal approximation, for many seeds: 1.96 standard errors to either side."""
    rng = np.random.default_rng(1)
    drawn = rng.normal(0.02, 0.01, 400)
    low, high = interval(list(drawn))
    error = drawn.std() / np.sqrt(len(drawn))
    assert low is not None
    assert high is not None
    assert_allclose(
        [low, high], [drawn.mean() - 1.96 * error, drawn.mean() + 1.96 * error], atol=0.1 * error
    )
    assert interval([0.1] * (SEEDS_LEAST - 1)) == (None, None)
