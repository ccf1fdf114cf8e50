"""A contribution from the syncer's side: measured from another base, and weighed."""

import numpy as np
from numpy.typing import NDArray

from islands.protocol.errors import InvariantError
from islands.protocol.settings.choices import Weighting

Floats = NDArray[np.float32]


def rebase(contribution: Floats, base: Floats, current: Floats) -> Floats:
    """Measure a contribution from the value published now: Δ + (Θ_now − Θ_base) = Θ_now − local.

    So a contribution whose base is older than Θ pulls towards where the learner is. Where learners
    open rounds it is applied as it was sent, and this function is not called. Where both versions
    agree, the result is the contribution bit for bit (but for the sign of zeros).

    Reference:
        protocol §3.6.
    """
    moved: Floats = contribution + (current - base)
    return moved


def weight(
    tokens: int, steps: int, rule: Weighting | str = Weighting.TOKENS_SQUARED_PER_STEP
) -> float:
    """Compute the weight of a contribution from the work since the value last sent or adopted.

    ::

        tokens_squared_per_step    w = tokens² / steps
        tokens                     w = tokens
        uniform                    w = 1

    The default is tokens times tokens per step: of two learners that saw the same data, the one
    with the larger batches, whose gradients are less noisy, counts for more. Only ratios matter.

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
