"""How much a contribution counts in a merge."""

from islands.protocol.errors import InvariantError
from islands.protocol.settings.run import Weighting


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
