"""The rules of merge and outer step in NumPy float64, from the formulas of protocol §3.

This is written apart from `islands.numerics` on purpose, and shares no code with it: what both
compute alike is not a mistake of one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.protocol.settings.choices import MergeRule, Weighting
from islands.protocol.settings.outer import OuterSettings

Doubles = NDArray[np.float64]

CANCELLED = 1e-6
"""Directions that cancel to less than this share of their length count as zero."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""A contribution that is shorter than this in a unit has no direction there."""


def weight(tokens: int, steps: int, rule: Weighting) -> float:
    """Return w: tokens²/steps, tokens, or 1."""
    match rule:
        case Weighting.TOKENS_SQUARED_PER_STEP:
            return float(tokens) ** 2 / steps
        case Weighting.TOKENS:
            return float(tokens)
        case Weighting.UNIFORM:
            return 1.0


def average(rows: Doubles, weights: Doubles) -> Doubles:
    """Return Σ wδ / Σ w of the rows δ."""
    return np.asarray(weights @ rows / weights.sum())


def radial_directional(rows: Doubles, weights: Doubles) -> Doubles:
    """Return the RDA of the rows δ, no longer than √M_eff · ‖average‖.

    ::

        (Σ w‖δ‖ / Σ w) · φ(Σ w φ(δ) / Σ w),   √M_eff = Σ w / √(Σ w²)
    """
    lengths = np.sqrt((rows * rows).sum(axis=1))
    long = lengths >= SMALLEST
    directions = np.where(long[:, None], rows / np.where(long, lengths, 1.0)[:, None], 0.0)
    direction = average(directions, weights)
    size = np.sqrt(direction @ direction)
    if size <= CANCELLED:
        return np.zeros_like(direction)
    mean = average(rows, weights)
    cap = weights.sum() / np.sqrt(weights @ weights) * np.sqrt(mean @ mean)
    length = min(weights @ lengths / weights.sum(), cap)
    return np.asarray(length / size * direction)


def merge(
    contributions: Sequence[Doubles],
    weights: Sequence[float],
    units: Sequence[Unit],
    rule: MergeRule,
) -> Doubles:
    """Return the merged direction, each unit by its rule; of one contribution, itself."""
    if len(contributions) == 1:
        return contributions[0]
    rows, shares = np.stack(contributions), np.array(weights, np.float64)
    merged = np.empty(rows.shape[1])
    for unit in units:
        here = slice(unit.offset, unit.offset + unit.size)
        directional = unit.rule == "rda" and rule is MergeRule.RADIAL_DIRECTIONAL
        merged[here] = (radial_directional if directional else average)(rows[:, here], shares)
    return merged


@dataclass(frozen=True, slots=True)
class State:
    """One fragment: Θ and the momentum v."""

    value: Doubles
    momentum: Doubles


def step(before: State, direction: Doubles, units: Sequence[Unit], outer: OuterSettings) -> State:
    """Take one outer step: v ← μv + Δ; Θ ← Θ − η(Δ + μv), or Θ − ηv without Nesterov.

    Units that are not stepped hold averages of states, and become Θ − Δ.
    """
    momentum = outer.momentum * before.momentum + direction
    ahead = direction + outer.momentum * momentum if outer.nesterov else momentum
    value = before.value - outer.learning_rate * ahead
    for unit in units:
        if not unit.stepped:
            here = slice(unit.offset, unit.offset + unit.size)
            value[here] = before.value[here] - direction[here]
    return State(value, momentum)
