"""Statistics in bounded memory: of measured times and rates, and of how often one link was lost."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, floor, inf, log10

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


WITHIN_S = 120.0
LOSSES_LEAST = 3
LOSSES_KEPT = 128
UNSTEADY = (
    "was lost {} times in two minutes, and dialled again each time: something on the way ends "
    "it, such as a balancer, a NAT or a VPN that forgets it, or a path that drops large packets"
)
"""The sentence about such a link; it stands behind the name of the link."""


@dataclass(slots=True)
class LostLinks:
    """The times of the newest losses of one link, and when people were informed last."""

    at_s: list[float] = field(default_factory=list)
    reported_s: float = -inf

    def lost(self, now_s: float) -> int | None:
        """Count a loss; return how many there were in two minutes, if it is time to say that."""
        newest = [at_s for at_s in self.at_s if now_s - at_s < WITHIN_S]
        self.at_s = [*newest[1 - LOSSES_KEPT :], now_s]
        if len(self.at_s) < LOSSES_LEAST or now_s - self.reported_s < WITHIN_S:
            return None
        self.reported_s = now_s
        return len(self.at_s)
