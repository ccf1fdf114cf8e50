"""Is a cell as good as the baseline? Differences seed by seed, and how sure they are.

Two runs of one seed begin with the same parameters and read the data in the same order, so their
difference varies less than either. The interval is a percentile bootstrap of the mean difference
(Efron 1979): the seeds are drawn anew with replacement. With fewer than `SEEDS_LEAST` seeds there
is no interval, and nothing is decided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

SEEDS_LEAST = 3
"""With two seeds a bootstrap says no more than which of them is larger."""
RESAMPLES = 10_000
CONFIDENCE = 0.95


class Verdict(StrEnum):
    """What follows from an interval of the relative difference and a margin."""

    BETTER = "better"
    WITHIN = "within"
    WORSE = "worse"
    UNDECIDED = "undecided"
    BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A cell against the baseline.

    Args:
        mean: of the cell's metric, over its seeds.
        worse_by: mean relative difference; positive where the cell is worse. None without a seed
            that both have.
        low: end of the interval of `worse_by`; None without one.
        high: its other end.
        verdict: what follows.
    """

    mean: float
    worse_by: float | None
    low: float | None
    high: float | None
    verdict: Verdict


def compare(
    cell: Mapping[int, float],
    baseline: Mapping[int, float],
    *,
    within: float,
    higher_is_better: bool = False,
) -> Comparison:
    """Compare metrics, given by seed.

    Args:
        cell: metric of each seed.
        baseline: the same.
        within: share by which the cell may be worse and count as equal.
        higher_is_better: whether more of the metric is better.
    """
    mean = float(np.mean(list(cell.values())))
    sign = -1.0 if higher_is_better else 1.0
    worse = [
        sign * (cell[seed] - baseline[seed]) / abs(baseline[seed])
        for seed in sorted(cell.keys() & baseline.keys())
        if baseline[seed]
    ]
    if not worse:
        return Comparison(mean, None, None, None, Verdict.UNDECIDED)
    low, high = interval(worse)
    return Comparison(mean, float(np.mean(worse)), low, high, _verdict(low, high, within))


def interval(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """Percentile bootstrap of the mean; the same numbers at every call."""
    if len(differences) < SEEDS_LEAST:
        return None, None
    rng = np.random.default_rng(0)
    drawn = rng.choice(np.asarray(differences), (RESAMPLES, len(differences))).mean(axis=1)
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _verdict(low: float | None, high: float | None, within: float) -> Verdict:
    if low is None or high is None:
        return Verdict.UNDECIDED
    if high < 0:
        return Verdict.BETTER
    if high <= within:
        return Verdict.WITHIN
    return Verdict.WORSE if low > within else Verdict.UNDECIDED
