"""Is a cell as good as the baseline? Differences seed by seed, and how sure they are.

Two runs of one seed begin with the same parameters and shuffle the data alike, so their difference
varies less than either. The interval is Student's, of the mean of these differences, relative to
the baseline's mean. Of differences that are skewed as an exponential distribution is, it holds the
mean of eight seeds in 88 % of studies, where it promises 95.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite, sqrt
from statistics import mean, stdev

from scipy.special import stdtrit

SEEDS_LEAST = 2
"""One difference alone says nothing of its spread."""
CONFIDENCE = 0.95


class Verdict(StrEnum):
    """The conclusion from an interval of the relative difference and a margin."""

    BASELINE = "baseline"
    BETTER = "better"
    WITHIN = "within"
    WORSE = "worse"
    UNDECIDED = "undecided"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A cell against the baseline: the mean relative difference and its interval, if there are.

    They are positive where the cell is worse.
    """

    verdict: Verdict
    worse_by: float | None = None
    low: float | None = None
    high: float | None = None


def compare(
    cell: Mapping[int, float],
    baseline: Mapping[int, float],
    *,
    within: float,
    higher_is_better: bool = False,
) -> Comparison:
    """Compare a cell's metric of each seed with the baseline's.

    It may be worse by the fraction `within` and count as equal. Without a common seed, and where
    the baseline's mean is 0, it is undecided.
    """
    seeds = sorted(cell.keys() & baseline.keys())
    whole = abs(mean(baseline[seed] for seed in seeds)) if seeds else 0.0
    if not whole:
        return Comparison(Verdict.UNDECIDED)
    sign = -1.0 if higher_is_better else 1.0
    worse = [sign * (cell[seed] - baseline[seed]) / whole for seed in seeds]
    if not all(map(isfinite, worse)):
        return Comparison(Verdict.FAILED)
    if len(worse) < SEEDS_LEAST:
        return Comparison(Verdict.UNDECIDED, worse[0])
    low, high = interval(worse)
    return Comparison(_verdict(low, high, within), mean(worse), low, high)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return Student's interval of the mean of at least two differences.

    Reference: Student (1908), The Probable Error of a Mean.
    """
    count = len(differences)
    half = stdev(differences) / sqrt(count) * stdtrit(count - 1, (1 + CONFIDENCE) / 2)
    return mean(differences) - half, mean(differences) + half


def _verdict(low: float, high: float, within: float) -> Verdict:
    if high < 0:
        return Verdict.BETTER
    if high <= within:
        return Verdict.WITHIN
    return Verdict.WORSE if low > within else Verdict.UNDECIDED
