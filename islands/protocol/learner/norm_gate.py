"""The limit on how far a neighbour's values may be from the own ones, by running median."""

from collections import deque
from dataclasses import dataclass, field
from math import isfinite
from statistics import median

KEPT = 32
LEAST_SAMPLES = 8
"""Before so many distances were taken in, the own norm is a reference as well."""


@dataclass(slots=True)
class NormGate:
    """Judges the distances of one fragment by those that were taken in; a refused one never is.

    So whoever is refused cannot move the limit, which need not follow neighbours that went far:
    nothing is refused that is no farther than the own values are long.
    """

    limit: float
    norms: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def judge(self, norm: float, own: float = 0.0) -> str | None:
        """Return why a distance is refused; None if it is ordinary, and taken in.

        Args:
            norm: of the difference between a neighbour's values and the own ones.
            own: norm of the own values. Nothing that is no farther than this is refused: early
                steps go as far, and so does who comes back to neighbours that have converged.
                Before there are `LEAST_SAMPLES`, it is what is usual; values that are all 0, and
                compared for the first time, say nothing of it.
        """
        if not isfinite(norm):
            return "its values are not finite"
        known = [one for one in self.norms if one > 0]
        usual = median(known) if known else 0.0
        if len(known) < LEAST_SAMPLES:
            usual = max(usual, own)
        if usual > 0 and norm > own and norm > self.limit * usual:
            return f"its values are {norm / usual:.1f} times as far as usual"
        self.norms.append(norm)
        return None
