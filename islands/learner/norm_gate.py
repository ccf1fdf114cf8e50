"""The limit on how far a neighbour's values may be from the own ones, by running median."""

from collections import deque
from dataclasses import dataclass, field
from math import isfinite
from statistics import median

KEPT = 32
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
            own: norm of the own values. Nothing that is no farther than this is refused: early
                steps go as far, and so does who comes back to neighbours that have converged.
        """
        if not isfinite(norm):
            return "its values are not finite"
        known = [one for one in self.norms if one > 0]
        self.norms.append(norm)
        if len(known) < LEAST_SAMPLES:
            return None
        excess = norm / median(known)
        far = excess > self.limit and norm > own
        return f"its values are {excess:.1f} times as far as usual" if far else None
