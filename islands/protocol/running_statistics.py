"""Statistics of a stream of measured times and rates, in bounded memory."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, floor, log10

NEWEST_WEIGHT = 0.2
PER_DECADE = 100
LOWEST_S = 1e-7
SAMPLES_MAX = 2**62
"""Samples beyond this number are not counted, as files hold integers of at most 63 bits."""


@dataclass(slots=True)
class MovingAverage:
    """Exponential moving average; the newest sample has weight 0.2, the first one counts fully."""

    value: float | None = None

    def add(self, sample: float) -> None:
        if self.value is None:
            self.value = sample
        else:
            self.value += NEWEST_WEIGHT * (sample - self.value)


@dataclass(slots=True)
class DurationHistogram:
    """Counts of durations in seconds by bins of a logarithmic scale: quantiles within 2.4 %."""

    count: int = 0
    largest_s: float = 0.0
    counts: dict[int, int] = field(default_factory=dict)

    @property
    def bins(self) -> tuple[tuple[int, int], ...]:
        return tuple(sorted(self.counts.items()))

    def add(self, duration_s: float) -> None:
        index = floor(PER_DECADE * log10(max(duration_s, LOWEST_S)))
        self.merge(((index, 1),), duration_s)

    def merge(self, bins: Iterable[tuple[int, int]], largest_s: float) -> None:
        self.largest_s = max(self.largest_s, largest_s)
        for index, samples in bins:
            count = min(samples, SAMPLES_MAX - self.count)
            self.count += count
            self.counts[index] = self.counts.get(index, 0) + count

    def quantile(self, fraction: float) -> float:
        """Return the smallest duration, in s, that this fraction of samples does not exceed."""
        left = ceil(fraction * self.count)
        for index in sorted(self.counts):
            left -= self.counts[index]
            if left <= 0:
                upper = 10 ** ((index + 1) / PER_DECADE)
                return float(min(self.largest_s, upper))
        return 0.0
