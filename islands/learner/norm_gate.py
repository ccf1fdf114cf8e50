"""The limit on how far a neighbour's values may be from the own ones, by running median."""

from collections import deque
from dataclasses import dataclass, field
from math import isfinite
from statistics import median

KEPT = 32
USUAL_SHARE = 0.01
LEAST_SAMPLES = 8
"""Nothing is refused before so many norms were seen."""


@dataclass(slots=True)
class NormGate:
    """Judges the distances of one fragment; every finite one enters the median, so it adapts."""

    limit: float
    norms: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def judge(self, norm: float, own: float = 0.0) -> str | None:
        """Return why a distance is refused; None if it is ordinary.

        Args:
            norm: of the difference between a neighbour's values and the own ones.
            own: norm of the own values. Learners that have converged are at no distance, and who
                comes back to them is: a hundredth of this is always usual.
        """
        if not isfinite(norm):
            return "its values are not finite"
        known = [one for one in self.norms if one > 0]
        self.norms.append(norm)
        if len(known) < LEAST_SAMPLES:
            return None
        excess = norm / max(median(known), USUAL_SHARE * own)
        return f"its values are {excess:.1f} times as far as usual" if excess > self.limit else None
