"""Gossip steps: what learners make of their own and their neighbours' values, without a syncer.

A learner i keeps, for each fragment, a slow value φ and a momentum m; its inner optimizer moves the
local value θ away from φ. A neighbour's share is φ and the outer gradient Δ = φ − θ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from islands.numerics.types import Flat
from islands.protocol.errors import InvariantError

# Shapes are checked under test (jaxtyping).


@dataclass(frozen=True, slots=True)
class Share:
    """One member's values of a fragment at a step boundary.

    Attributes:
        value: φ, the slow value.
        gradient: Δ = φ − θ, the outer gradient.
    """

    value: Flat
    gradient: Flat


@dataclass(frozen=True, slots=True)
class GossipStep:
    """The slow value and the momentum after an exchange."""

    value: Flat
    momentum: Flat


def noloco_step(
    own: Share,
    momentum: Flat,
    shares: Sequence[Share],
    *,
    decay: float,
    rate: float,
    pull: float,
) -> GossipStep:
    """Step with momentum, and move towards the neighbours' slow values.

    ::

        m ← a·m + b·mean(θ − φ) + g·(mean(φ) − φ_i);   φ_i ← φ_i + m

    Means are over the group. They are summed in float64 and in its order, so that members with the
    same order compute the same bits; all else is computed in float32.

    Args:
        own: φ_i and Δ_i; not modified.
        momentum: m of this member; not modified.
        shares: of the whole group, this member's own included, in an order that all agree on.
        decay: a in [0, 1), share of the momentum that is kept.
        rate: b, outer learning rate.
        pull: g, how far the slow value moves towards the group's mean.

    Returns:
        The new φ_i and m.

    Raises:
        InvariantError: The group is empty; who has no neighbour makes no gossip step.

    Reference:
        NoLoCo (arXiv 2506.10911), the modified Nesterov momentum, for pairs.

    Deviation:
        A group may have more than two members: a ring, a graph, or everybody.
    """
    value = _mean([share.value for share in shares])
    value -= own.value
    value *= np.float32(pull)
    moved = _mean([share.gradient for share in shares])
    moved *= np.float32(rate)
    value -= moved  # Δ points against the movement θ − φ
    value += np.float32(decay) * momentum
    return GossipStep(own.value + value, value)


def average_step(shares: Sequence[Share]) -> Flat:
    """Average the members' local values: φ ← mean(θ) = mean(φ) − mean(Δ).

    Means are summed in float64; all else is computed in float32.

    Args:
        shares: of the whole group, in an order that all agree on.

    Returns:
        The new φ, which has the same bits for all members.

    Raises:
        InvariantError: The group is empty.

    Reference:
        Decentralised SGD with partial averaging; protocol §10, `gossip`, plain.
    """
    value = _mean([share.value for share in shares])
    value -= _mean([share.gradient for share in shares])
    return value


def _mean(arrays: Sequence[Flat]) -> Flat:
    """Return the mean in a new array, summed in the order given."""
    if not arrays:
        raise InvariantError("a gossip step needs at least one share")
    total = arrays[0].astype(np.float64)
    for array in arrays[1:]:
        total += array
    total /= len(arrays)
    return total.astype(np.float32)
