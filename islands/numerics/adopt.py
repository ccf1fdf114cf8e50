"""How a learner takes over a published value. Pure; NumPy and JAX alike, also under jit.

Inner moments are never touched. Which rule, and at which step, is decided by the learner's state.
"""

from islands.numerics.types import ArrayT


def overwrite(local: ArrayT, published: ArrayT) -> ArrayT:
    """Θ, in the dtype of the local value: θ ← Θ.

    What the learner did since it sent its contribution is discarded (fate `overwritten`).

    Reference:
        Decoupled DiLoCo (arXiv 2604.21428); SPEC §2, adoption.
    """
    return published.astype(local.dtype)


def mix(local: ArrayT, published: ArrayT, keep: float | ArrayT) -> ArrayT:
    """θ ← αθ + (1 − α)Θ, computed in Θ's dtype, returned in the local value's.

    Args:
        local: θ, any floating dtype.
        published: Θ, float32.
        keep: α, the kept share of the local value, in [0, 1]; a scalar. 0 is `overwrite`.

    Reference:
        Streaming DiLoCo (arXiv 2501.18512), merging with the overlapped outer update; α = 0.5.
    """
    mixed: ArrayT = keep * local.astype(published.dtype) + (1.0 - keep) * published
    return mixed.astype(local.dtype)


def delay_corrected(local: ArrayT, published: ArrayT, sent: ArrayT) -> ArrayT:
    """θ ← θ_now + (Θ_new − θ_sent): the merge's correction, on top of progress made meanwhile.

    Args:
        local: θ_now, any floating dtype.
        published: Θ_new, float32.
        sent: The local value that the contribution was taken from, float32; the base, if the
            update does not contain this learner's contribution.

    Returns:
        The corrected value in the local value's dtype. It is Θ_new exactly if nothing was done
        since sending and the difference is exact.

    Deviation:
        Ours; the paper overwrites. SPEC §2.
    """
    corrected: ArrayT = local.astype(published.dtype) + (published - sent)
    return corrected.astype(local.dtype)
