"""A contribution from the learner's side: its outer gradient, its weight, and what becomes of it.

The outer gradient is the negative of a learner's movement since its base. How a learner adopts the
value that was published, and keeps its progress since, its state decides; inner moments are never
changed. All of it works on NumPy and on JAX arrays alike; under jit the outer gradient becomes part
of the pre-snapshot, where the result must be a new buffer (the local value is donated to the next
step).
"""

import numpy as np

from islands.numerics.types import ArrayT
from islands.protocol.errors import InvariantError
from islands.protocol.settings.choices import Weighting


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

    So a contribution whose base is older than Θ pulls towards where the learner is. Where learners
    open rounds it is applied as it was sent, and this function is not called. The two differ only
    by what was merged in between.

    Args:
        contribution: Δ = Θ_base − local, float32.
        base: Θ_base, the version the contribution names.
        current: Θ_now.

    Returns:
        Δ from Θ_now, float32; the contribution bit for bit (but for the sign of zeros) where both
        versions agree.

    Reference:
        protocol §3.6.
    """
    moved: ArrayT = contribution + (current - base)
    return moved


def weight(
    tokens: int, steps: int, rule: Weighting | str = Weighting.TOKENS_SQUARED_PER_STEP
) -> float:
    """Compute the weight of a contribution from the work behind it.

    ::

        tokens_squared_per_step    w = tokens² / steps
        tokens                     w = tokens
        uniform                    w = 1

    The default is tokens times tokens per step: of two learners that saw the same data, the one
    with the larger batches, whose gradients are less noisy, counts for more.

    Args:
        tokens: Tokens processed since the value last sent or adopted, ≥ 0.
        steps: Inner steps since then, ≥ 1.
        rule: One of `Weighting`, by member or by name.

    Returns:
        The weight in float64, not normalised; only ratios of weights matter.

    Raises:
        InvariantError: There is no step, or a negative number of tokens: such a learner is not
            eligible and must not be asked.

    Reference:
        Decoupled DiLoCo (arXiv 2604.21428), weighting of contributions; protocol §3.5.
    """
    if steps < 1 or tokens < 0:
        raise InvariantError(f"a contribution of {tokens} tokens in {steps} steps has no weight")
    match Weighting(rule):
        case Weighting.TOKENS_SQUARED_PER_STEP:
            return tokens * tokens / steps
        case Weighting.TOKENS:
            return float(tokens)
        case Weighting.UNIFORM:
            return 1.0


def delay_corrected(local: ArrayT, published: ArrayT, sent: ArrayT) -> ArrayT:
    """Apply the merge's correction to the present local value: θ ← θ_now + (Θ_new − θ_sent).

    Args:
        local: θ_now, any floating dtype.
        published: Θ_new, float32.
        sent: The local value that the contribution was taken from, float32; the base, if the
            update does not contain this learner's contribution.

    Returns:
        The corrected value in the local value's dtype. It is Θ_new exactly if no step was taken
        since sending and the difference is exact.

    Deviation:
        This rule is ours; the paper overwrites the local value. protocol §2.
    """
    corrected: ArrayT = local.astype(published.dtype) + (published - sent)
    return corrected.astype(local.dtype)


def mixed(local: ArrayT, published: ArrayT, share: float) -> ArrayT:
    """Mix the local with the published value: θ ← α·θ_now + (1 − α)·Θ_new.

    Args:
        local: θ_now, any floating dtype.
        published: Θ_new, float32.
        share: α in [0, 1], the share of the local value.

    Returns:
        The mixture in the local value's dtype, computed in float32.

    Reference:
        Streaming DiLoCo (arXiv 2501.18512), §2.3.
    """
    held = local.astype(published.dtype)
    mixture: ArrayT = (share * held + (1 - share) * published).astype(local.dtype)
    return mixture
