"""A moving average of measured times and rates."""

from dataclasses import dataclass

NEWEST_SHARE = 0.2


@dataclass(slots=True)
class MovingAverage:
    """Exponential moving average; the newest sample has weight 0.2, the first one counts fully."""

    value: float | None = None

    def add(self, sample: float) -> None:
        """Take in one sample."""
        if self.value is None:
            self.value = sample
        else:
            self.value += NEWEST_SHARE * (sample - self.value)
