"""NoLoCo's step for a whole fleet in NumPy float64, from protocol §10 alone; no code is shared.

Rows are learners: θ (local), φ (slow) and m (momentum), each of shape (learners, n).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Double = NDArray[np.float64]


@dataclass
class Fleet:
    """All learners' values."""

    local: Double
    slow: Double
    momentum: Double

    @classmethod
    def at(cls, value: Double, learners: int) -> "Fleet":
        """Start all learners at one value, at rest."""
        rows = np.tile(value.astype(np.float64), (learners, 1))
        return cls(rows.copy(), rows.copy(), np.zeros_like(rows))


def noloco(
    fleet: Fleet, groups: Sequence[Sequence[int]], a: float = 0.5, b: float = 0.7, g: float = 0.7
) -> None:
    """m_i ← a·m_i + b·mean(θ−φ) + g·(mean φ − φ_i); φ_i += m_i; θ_i ← φ_i, in each group."""
    slow, moved = fleet.slow.copy(), fleet.local - fleet.slow
    for group in groups:
        rows = list(group)
        for i in rows:
            fleet.momentum[i] = (
                a * fleet.momentum[i]
                + b * moved[rows].mean(axis=0)
                + g * (slow[rows].mean(axis=0) - slow[i])
            )
            fleet.slow[i] = slow[i] + fleet.momentum[i]
            fleet.local[i] = fleet.slow[i]
