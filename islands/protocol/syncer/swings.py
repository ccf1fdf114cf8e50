"""Swings (oscillation): merged directions undo those before them, so the outer step is too long.

Each merge measures the cosine between its direction and the momentum, which at μ = 0 is the merged
direction before it. Steps that make progress agree with those before (above 0), chance gives 0 on
average, and steps that swing about an optimum undo one another (below 0). So:

- a fragment swings once all of its last `WINDOW` cosines are below 0, and their mean is below
  `SWINGS_BELOW`, many times what chance and rounding leave of a fragment of 64 KiB;
- it stops swinging once that mean is back at 0; in between, its state does not change;
- an entry is recorded when a fragment begins to swing, when more do than were reported, and when
  none does any more; at most once in `TOLD_EVERY_S`.

Reference: the limit of stability that is exceeded, in `islands.protocol.syncer.stability`.
"""

from collections import deque
from dataclasses import dataclass, field

WINDOW = 8
SWINGS_BELOW = -0.05
TOLD_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Swinging:
    """The number of fragments that swing, 0 if that is over, and their lowest mean cosine."""

    fragments: int
    cosine: float


@dataclass(slots=True)
class _Swing:
    """One fragment's last cosines, and whether it swings."""

    cosines: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    swings: bool = False

    @property
    def mean(self) -> float:
        return sum(self.cosines) / len(self.cosines)

    def merged(self, cosine: float) -> None:
        self.cosines.append(cosine)
        negative = len(self.cosines) == WINDOW and max(self.cosines) < 0
        if negative and self.mean < SWINGS_BELOW:
            self.swings = True
        elif self.mean >= 0:
            self.swings = False


@dataclass(slots=True)
class SwingWatch:
    """Watches for fragments that swing; `told` of them were reported, at `told_s`."""

    told: int = 0
    told_s: float | None = None
    _fragments: dict[int, _Swing] = field(default_factory=dict)

    def merged(self, fragment: int, cosine: float, now_s: float) -> Swinging | None:
        """Take in a merge's cosine; return what to report, if it is time for a report."""
        self._fragments.setdefault(fragment, _Swing()).merged(cosine)
        means = [swing.mean for swing in self._fragments.values() if swing.swings]
        news = len(means) > self.told or (self.told > 0 and not means)
        lately = self.told_s is not None and now_s - self.told_s < TOLD_EVERY_S
        if not news or lately:
            return None
        self.told, self.told_s = len(means), now_s
        return Swinging(len(means), min(means, default=0.0))
