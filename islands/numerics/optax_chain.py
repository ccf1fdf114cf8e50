"""Use any optax chain as an outer optimizer. Importing this file imports JAX.

A chain acts on one fragment at a time: transformations that use norms (clipping, LARS, LAMB) see
the norm of the fragment, not of the model.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from islands.numerics.outer import OuterState
from islands.protocol.errors import InvariantError


class OptaxChain:
    """An optax chain on one flat fragment, jitted on the CPU.

    The state's arrays are named by their paths in the chain's own state, such as `[0].trace`.

    Args:
        chain: A gradient transformation whose state holds numeric arrays only. It is given the
            merged direction as gradient and the published value as parameters, both float32[n].
    """

    def __init__(self, chain: optax.GradientTransformation) -> None:
        self._chain = chain
        self._step = jax.jit(self._update)

    def init(self, value: NDArray[np.float32]) -> OuterState:
        """Return the chain's initial state as named arrays."""
        with _on_cpu():
            return _named(self._chain.init(jnp.asarray(value)))

    def update(
        self, direction: NDArray[np.float32], state: OuterState, value: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], OuterState]:
        """Take one step of the chain; the arguments are not modified.

        Raises:
            InvariantError: The state belongs to another chain: journal and settings disagree.
        """
        template = jax.eval_shape(self._chain.init, value)
        places, tree = jax.tree_util.tree_flatten_with_path(template)
        wanted = {jax.tree_util.keystr(place): (leaf.shape, leaf.dtype) for place, leaf in places}
        if wanted != {name: (array.shape, array.dtype) for name, array in state.items()}:
            raise InvariantError(
                f"an outer state of {sorted(state)} is not one of {sorted(wanted)}"
            )
        own = jax.tree_util.tree_unflatten(tree, [state[name] for name in wanted])
        with _on_cpu():
            stepped, after = self._step(direction, own, value)
            return np.array(stepped), _named(after)

    def _update(
        self, direction: jax.Array, own: optax.OptState, value: jax.Array
    ) -> tuple[jax.Array, optax.OptState]:
        updates, after = self._chain.update(direction, own, value)
        return jnp.asarray(optax.apply_updates(value, updates)), after


def _named(own: optax.OptState) -> OuterState:
    """Return a chain's state as arrays by name."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(own)
    return {jax.tree_util.keystr(place): np.array(leaf) for place, leaf in leaves}


@contextmanager
def _on_cpu() -> Iterator[None]:
    """Compute on the CPU, with the dtype promotion that optax's own chains expect."""
    with (
        jax.default_device(jax.local_devices(backend="cpu")[0]),
        jax.numpy_dtype_promotion("standard"),
    ):
        yield
