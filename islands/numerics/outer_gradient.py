"""The outer gradient: the negative of a learner's movement since its base.

It works on NumPy and on JAX arrays alike; under jit it becomes part of the pre-snapshot, where the
result must be a new buffer (the local value is donated to the next step).
"""

import numpy as np

from islands.numerics.types import ArrayT


def outer_gradient(
    base: ArrayT, local: ArrayT, dtype: np.dtype[np.generic] | type[np.generic] | None = None
) -> ArrayT:
    """Compute base minus local value in the base's dtype: Δ = Θ_base − θ.

    It points against the learner's movement, as a gradient does, so the outer optimizer subtracts
    it.

    Args:
        base: The published value adopted last, float32 (float64 in studies).
        local: The local value now, of the same shape, in any floating dtype; widened first.
        dtype: Dtype of the result on the wire; the base's unless given. Rounds to nearest even.

    Returns:
        The outer gradient. Exact in float64; in float32, base − (base − local) differs from
        local by at most 1 ulp of max(|base|, |local|).

    Reference:
        DiLoCo (arXiv 2311.08105), algorithm 1, line 12: Δ = θ^(t−1) − θ_i^(t).
    """
    difference: ArrayT = base - local.astype(base.dtype)
    return difference if dtype is None else difference.astype(dtype)


def rebase(contribution: ArrayT, base: ArrayT, current: ArrayT) -> ArrayT:
    """Measure a contribution from the value published now: Δ + (Θ_now − Θ_base) = Θ_now − local.

    With `anchor: current` (the paper's) a contribution whose base is older than Θ pulls towards
    where the learner is; with `anchor: base` it is applied as it was sent, and this function is
    not called. The two differ only by what was merged in between.

    Args:
        contribution: Δ = Θ_base − local, float32.
        base: Θ_base, the version the contribution names.
        current: Θ_now.

    Returns:
        Δ from Θ_now, float32; the contribution bit for bit (but for the sign of zeros) where both
        versions agree.

    Reference:
        protocol §3.6, anchor.
    """
    moved: ArrayT = contribution + (current - base)
    return moved
