"""The outer optimizer that the settings name. JAX is imported only for an optimizer of optax."""

from functools import cache

import numpy as np

from islands.numerics.delayed_nesterov import DelayedNesterov
from islands.numerics.outer import OuterOptimizer, Sgd
from islands.protocol.settings.outer import DELAYED_NESTEROV, SGD, OuterSettings

PROBE = 64
"""Elements of a fragment by which a state is measured."""


def outer_optimizer(settings: OuterSettings) -> OuterOptimizer:
    """Make the outer optimizer of a run.

    Raises:
        SettingsError: optax has no such optimizer, or it does not take the arguments; mend what
            the sentence names.
    """
    match settings.kind:
        case kind if kind == SGD:
            return Sgd.of(settings)
        case kind if kind == DELAYED_NESTEROV:
            return DelayedNesterov.of(settings)
        case _:
            from islands.numerics.optax_named import named_chain

            return named_chain(settings)


@cache
def state_values(settings: OuterSettings) -> int:
    """Return how many values per parameter the optimizer keeps, such as 1 for a momentum.

    Raises:
        SettingsError: As `outer_optimizer`.
    """
    value = np.zeros(PROBE, np.float32)
    state = outer_optimizer(settings).init(value)
    return round(sum(array.nbytes for array in state.values()) / value.nbytes)
