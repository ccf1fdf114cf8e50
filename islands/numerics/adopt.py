"""How a learner takes over a published value and keeps what it has done since. NumPy and JAX alike.

Inner moments are never touched. Which rule, and at which step, is decided by the learner's state.
"""

from islands.numerics.types import ArrayT


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
