"""How a learner adopts a published value and keeps its progress since. For NumPy and JAX arrays.

Inner moments are never changed. The learner's state decides which rule applies, and at which step.
"""

from islands.numerics.types import ArrayT


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
