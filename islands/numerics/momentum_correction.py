"""Damp what a late contribution takes back of the outer momentum, unit by unit."""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics.norms import Measured, measure

# Shapes are checked under test (jaxtyping).

STRENGTH = 1.0
"""k: share of an exactly opposed component that is removed, before the confidence in it."""

MOMENTUM_WEIGHT = 0.1
"""κ: how much shorter than the momentum a contribution may be before it counts less."""


def corrected(measured: Measured, momentum: NDArray[np.float32], units: Sequence[Unit]) -> Measured:
    """Shrink the component along the momentum where a contribution points against it.

    For each unit with contribution δ, momentum v and cosine c = δ·v / (‖δ‖‖v‖)::

        δ ← δ − β (δ·v̂) v̂,   β = min(1, k (−c) ‖δ‖ / (‖δ‖ + κ‖v‖)),   v̂ = v/‖v‖    if c < 0

    Everything else is left as it is: other units, and what is orthogonal to the momentum. So no
    norm grows, and no component changes its sign. A contribution that was computed from an old base
    may point against what was learned since; the more it does, and the longer it is, the more of
    that is removed. Dot products are float64 sums of float32 products.

    Args:
        measured: A finite contribution; not modified.
        momentum: v of the fragment, flat float32, in the units of a contribution.
        units: The fragment's merge units. Those that are not stepped have no momentum, and are left
            alone.

    Returns:
        The same object where nothing opposes the momentum, else a corrected copy with its norms.

    Reference:
        HeLoCo (arXiv 2606.00271), as a digest reports it; protocol §14.

    Deviation:
        Only directions with a negative cosine are corrected; HeLoCo also turns those that agree
        with the momentum but weakly. k = 1, κ = 0.1 and the upper limit of 1 are ours.
    """
    values = measured.values
    for unit, length in zip(units, measured.unit_norms.tolist(), strict=True):
        here = slice(unit.offset, unit.offset + unit.size)
        share = _damped(measured.values[here], momentum[here], length) if unit.stepped else 0.0
        if share > 0:
            values = values.copy() if values is measured.values else values
            values[here] += np.float32(share) * momentum[here]
    return measured if values is measured.values else measure(values, units)


def _damped(delta: NDArray[np.float32], momentum: NDArray[np.float32], length: float) -> float:
    """Return −β (δ·v) / ‖v‖², the multiple of v to add; 0 where δ does not oppose v."""
    along = float(np.sum(delta * momentum, dtype=np.float64))
    against = sqrt(float(np.sum(momentum * momentum, dtype=np.float64)))
    if along >= 0 or against == 0 or length == 0:
        return 0.0
    cosine = max(-1.0, along / (length * against))
    confidence = length / (length + MOMENTUM_WEIGHT * against)
    return min(1.0, -STRENGTH * cosine * confidence) * -along / against**2
