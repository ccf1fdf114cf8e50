"""The arithmetic of protocol §3 in NumPy float64, from the formulas alone.

Written apart from `islands.numerics` and sharing no code with it: straight lines, whole arrays, no
blocks, no norms reused. Slow and plain on purpose.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from islands.layout.leaves import Unit
from islands.protocol.settings.choices import MergeRule
from islands.protocol.settings.outer import OuterSettings

Double = NDArray[np.float64]
AVERAGE, RDA = MergeRule.AVERAGE, MergeRule.RADIAL_DIRECTIONAL

CANCELLED = 1e-6  # [O] directions that cancel below this count as zero


def phi(x: Double) -> Double:
    """φ(x) = x / ‖x‖, φ(0) = 0."""
    length = np.linalg.norm(x)
    return x / length if length > 0 else np.zeros_like(x)


def average(deltas: Sequence[ArrayLike], weights: Sequence[float]) -> Double:
    """Σ wδ / Σ w."""
    rows = np.array(deltas, np.float64)
    w = np.array(weights, np.float64)[:, None]
    return np.asarray((w * rows).sum(axis=0) / w.sum())


def rda_uncapped(deltas: Sequence[ArrayLike], weights: Sequence[float]) -> Double:
    """(Σ w‖δ‖ / Σ w) · φ(Σ w φ(δ) / Σ w), as in the paper."""
    rows = np.array(deltas, np.float64)
    w = np.array(weights, np.float64)
    radius = (w * np.linalg.norm(rows, axis=1)).sum() / w.sum()
    direction = average([phi(row) for row in rows], weights)
    if np.linalg.norm(direction) <= CANCELLED:
        return np.zeros_like(direction)
    return np.asarray(radius * phi(direction))


def rda(deltas: Sequence[ArrayLike], weights: Sequence[float]) -> Double:
    """The same with our cap of √M_eff · ‖average‖, and the identity for one contributor."""
    if len(deltas) == 1:
        return np.array(deltas[0], np.float64)
    merged = rda_uncapped(deltas, weights)
    w = np.array(weights, np.float64)
    cap = w.sum() / np.sqrt((w**2).sum()) * np.linalg.norm(average(deltas, weights))
    length = np.linalg.norm(merged)
    return merged * (cap / length) if length > cap else merged


def merge(deltas: Sequence[ArrayLike], weights: Sequence[float], units: Sequence[Unit]) -> Double:
    rows = np.array(deltas, np.float64)
    merged = np.full(rows.shape[1], np.nan)
    for unit in units:
        part = rows[:, unit.offset : unit.offset + unit.size]
        rule = rda if unit.rule is RDA else average
        merged[unit.offset : unit.offset + unit.size] = rule(list(part), weights)
    return merged


@dataclass
class Syncer:
    """One fragment of a syncer: Θ and v, stepped by SGD with momentum."""

    value: Double
    momentum: Double
    learning_rate: float
    decay: float
    nesterov: bool = True

    def step(self, direction: Double) -> None:
        """One step: v ← μv + Δ; Θ ← Θ − η(Δ + μv), or Θ − ηv."""
        self.momentum = self.decay * self.momentum + direction
        ahead = direction + self.decay * self.momentum if self.nesterov else self.momentum
        self.value = self.value - self.learning_rate * ahead


Memory = dict[str, Double]


def outer_step(
    outer: OuterSettings, value: Double, memory: Memory, direction: Double
) -> tuple[Double, Memory]:
    """One step of the optimizer that the settings name, and its memory; that is empty at first."""
    zero = np.zeros_like(direction)
    v, m, b = (memory.get(name, zero) for name in "vmb")
    n = int(memory.get("n", np.zeros(()))) + 1
    rate = outer.learning_rate
    count = np.array(float(n))
    if outer.optimizer == "sgd":
        syncer = Syncer(value, v, rate, outer.momentum, outer.nesterov)
        syncer.step(direction)
        return syncer.value, {"v": syncer.momentum, "n": count}
    if outer.optimizer == "delayed_nesterov":
        assert outer.delay_merges is not None
        part = direction / outer.delay_merges
        b = b + direction
        if n % outer.delay_merges:
            return value - rate * part, {"v": v, "b": b, "n": count}
        v = outer.momentum * v + b / outer.delay_merges
        return value - rate * (part + outer.momentum * v), {"v": v, "n": count}
    assert outer.optimizer == "adam"
    b1, b2 = float(str(outer.arguments.get("b1", 0.9))), 0.999
    v, m = b2 * v + (1 - b2) * direction**2, b1 * m + (1 - b1) * direction
    ahead = m / (1 - b1**n) / (np.sqrt(v / (1 - b2**n)) + 1e-8)
    return value - rate * ahead, {"v": v, "m": m, "n": count}


def noloco_momentum(
    momentum: Double,
    slow: Double,
    group: Sequence[tuple[Double, Double]],
    a: float = 0.5,
    b: float = 0.7,
    g: float = 0.7,
) -> Double:
    """M ← a·m + b·mean(θ − φ) + g·(mean φ − φ_i), of a group's (φ, θ − φ); then φ_i += m."""
    slows, moves = zip(*group, strict=True)
    return np.asarray(
        a * momentum + b * np.mean(moves, axis=0) + g * (np.mean(slows, axis=0) - slow)
    )


@dataclass
class Fleet:
    """Values of learners that gossip; rows are learners: θ (local), φ (slow) and m (momentum)."""

    local: Double
    slow: Double
    momentum: Double

    @classmethod
    def at(cls, value: Double, learners: int) -> "Fleet":
        rows = np.tile(value.astype(np.float64), (learners, 1))
        return cls(rows.copy(), rows.copy(), np.zeros_like(rows))

    def step(self, groups: Sequence[Sequence[int]]) -> None:
        """Take NoLoCo's step in each group; learners go on from their slow values."""
        slow, moved = self.slow.copy(), self.local - self.slow
        for group in groups:
            shares = [(slow[i], moved[i]) for i in group]
            for i in group:
                self.momentum[i] = noloco_momentum(self.momentum[i], slow[i], shares)
                self.local[i] = self.slow[i] = slow[i] + self.momentum[i]
