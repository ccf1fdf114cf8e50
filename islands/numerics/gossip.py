"""Gossip steps: what learners make of their own and their neighbours' values, without a syncer.

A learner i keeps, for each fragment, a slow value φ and a momentum m; its inner optimizer moves the
local value θ away from φ. Neighbours exchange φ and the outer gradient Δ = φ − θ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from islands.numerics.types import Flat
from islands.protocol.errors import InvariantError

# Shapes are checked under test (jaxtyping).


@dataclass(frozen=True, slots=True)
class Values:
    """One member's slow value φ and outer gradient Δ = φ − θ of a fragment, at a step boundary."""

    value: Flat
    gradient: Flat


def noloco_step(
    own: Values,
    momentum: Flat,
    group: Sequence[Values],
    *,
    decay: float,
    rate: float,
    pull: float,
) -> tuple[Flat, Flat]:
    """Step with momentum, and move towards the neighbours' slow values: return φ_i and m.

    ::

        m ← a·m + b·mean(θ − φ) + g·(mean(φ) − φ_i);   φ_i ← φ_i + m

    a is `decay`, b is `rate` and g is `pull`. Means are over the group, this member included. They
    are summed in float64 and in the group's order, so that members with the same order compute the
    same bits; all else is computed in float32.

    Raises:
        InvariantError: The group is empty; who has no neighbour makes no gossip step.

    Reference:
        NoLoCo (arXiv 2506.10911), the modified Nesterov momentum, for pairs.

    Deviation:
        A group may have more than two members: a ring, a graph, or everybody.
    """
    value = _mean([each.value for each in group])
    value -= own.value
    value *= np.float32(pull)
    moved = _mean([each.gradient for each in group])
    moved *= np.float32(rate)
    value -= moved  # Δ points against the movement θ − φ
    value += np.float32(decay) * momentum
    return own.value + value, value


def average_step(group: Sequence[Values]) -> Flat:
    """Average the members' local values: φ ← mean(θ) = mean(φ) − mean(Δ).

    Means are summed in float64; all else is computed in float32. All members that order the group
    alike compute the same bits.

    Raises:
        InvariantError: The group is empty.

    Reference:
        Decentralised SGD with partial averaging; protocol §10, `gossip`, plain.
    """
    value = _mean([each.value for each in group])
    value -= _mean([each.gradient for each in group])
    return value


def _mean(arrays: Sequence[Flat]) -> Flat:
    """Return the mean in a new array, summed in the order given."""
    if not arrays:
        raise InvariantError("a gossip step needs at least one member")
    total = arrays[0].astype(np.float64)
    for array in arrays[1:]:
        total += array
    total /= len(arrays)
    return total.astype(np.float32)
