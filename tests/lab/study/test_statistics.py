"""Intervals and verdicts, held against cases whose answer is known."""

import numpy as np
import pytest

from islands.lab.study.statistics import Comparison, Verdict, compare, interval

BASELINE = {0: 2.0, 1: 2.2, 2: 1.9, 3: 2.1}


def times(factors: list[float]) -> dict[int, float]:
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
    found = compare(times(factors), BASELINE, within=0.01)
    assert found.verdict is verdict
    assert found.worse_by == pytest.approx(np.mean(factors) - 1, abs=0.003)
    assert found.low is not None
    assert found.high is not None
    assert (found.low + found.high) / 2 == pytest.approx(found.worse_by)


def test_more_may_be_better() -> None:
    found = compare(times([1.1, 1.1, 1.1]), BASELINE, within=0.01, higher_is_better=True)
    assert found.verdict is Verdict.BETTER
    assert found.worse_by == pytest.approx(-0.1)


def test_one_seed_decides_nothing() -> None:
    found = compare(times([1.5]), BASELINE, within=0.01)
    assert (found.verdict, found.low, found.high) == (Verdict.UNDECIDED, None, None)
    assert found.worse_by == pytest.approx(0.5)


def test_seeds_are_paired() -> None:
    found = compare(times([1.02, 1.021, 1.019, 1.02]), BASELINE, within=0.01)
    assert found.verdict is Verdict.WORSE


def test_without_a_common_seed_nothing_is_compared() -> None:
    assert compare({7: 1.0}, BASELINE, within=0.01) == Comparison(Verdict.UNDECIDED)
    assert compare({0: 1.0}, {0: 0.0}, within=0.01) == Comparison(Verdict.UNDECIDED)


def test_what_is_no_number_has_failed() -> None:
    for wrong in (float("nan"), float("inf")):
        found = compare({0: 1.0, 1: wrong}, BASELINE, within=0.01)
        assert found == Comparison(Verdict.FAILED)


def test_the_interval_of_known_numbers() -> None:
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.4843, 2 + 2.4843), abs=1e-3)
