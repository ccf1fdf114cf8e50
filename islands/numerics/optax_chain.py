"""Any optax chain as an outer optimizer, or one by its name. Importing this file imports JAX.

A chain acts on one fragment at a time: transformations that use norms (clipping, LARS, LAMB) see
the norm of the fragment, not of the model.
"""

import difflib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from islands.numerics.merge import OuterState
from islands.protocol.errors import InvariantError, SettingsError
from islands.protocol.settings.outer import OuterSettings


class OptaxChain:
    """An optax chain on one flat fragment, jitted on the CPU.

    It is given the merged direction as gradient and the published value as parameters, both
    float32[n]. The state must hold numeric arrays only, which are named by their paths in the
    chain's own state, such as `[0].trace`.
    """

    def __init__(self, chain: optax.GradientTransformation) -> None:
        self._chain = chain
        self._step = jax.jit(self._update)

    def init(self, value: NDArray[np.float32]) -> OuterState:
        with _on_cpu():
            return _named(self._chain.init(jnp.asarray(value)))

    def update(
        self, direction: NDArray[np.float32], state: OuterState, value: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], OuterState]:
        template = jax.eval_shape(self._chain.init, value)
        leaves, tree = jax.tree_util.tree_flatten_with_path(template)
        wanted = {jax.tree_util.keystr(keys): (leaf.shape, leaf.dtype) for keys, leaf in leaves}
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
    leaves = jax.tree_util.tree_leaves_with_path(own)
    return {jax.tree_util.keystr(keys): np.array(leaf) for keys, leaf in leaves}


@contextmanager
def _on_cpu() -> Iterator[None]:
    """Compute on the CPU, with the dtype promotion that optax's own chains expect."""
    with (
        jax.default_device(jax.local_devices(backend="cpu")[0]),
        jax.numpy_dtype_promotion("standard"),
    ):
        yield


RATE = "learning_rate"
TRANSFORMATION = ("scale_by_", "_")
"""How names of optax begin that make a part of an optimizer, which turns no sign."""

MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What optax and JAX raise when an optimizer is given arguments that it cannot use."""


def named_chain(settings: OuterSettings) -> OptaxChain:
    """Make the optimizer that the settings name, and try a step: no run shall find a misfit.

    Raises:
        SettingsError: There is no such optimizer, it does not take these arguments, or its state
            cannot be journalled; the sentence says which.
    """
    # A function of optax makes an optimizer if it takes a learning rate.
    made = {
        name: each
        for name, each in vars(optax).items()
        if not name.startswith(TRANSFORMATION)
        and isinstance(each, (FunctionType, partial))
        and RATE in inspect.signature(each).parameters
    }
    if settings.optimizer not in made:
        near = difflib.get_close_matches(settings.optimizer, [*made, "delayed_nesterov"], 1)
        hint = f"; did you mean {near[0]}?" if near else ", such as adam, lion or nadam"
        raise SettingsError(
            f"outer.optimizer is {settings.optimizer!r}; it must be sgd, delayed_nesterov or an "
            f"optimizer of optax{hint}"
        )
    make = made[settings.optimizer]
    takes = [name for name in inspect.signature(make).parameters if name != RATE]
    for name in settings.arguments:
        if name not in takes:
            raise SettingsError(
                f"outer.arguments has {name!r}, which {settings.optimizer} does not take; it takes "
                f"{', '.join(takes)}"
            )
    try:
        chain = OptaxChain(make(**{RATE: float(settings.learning_rate)}, **settings.arguments))
        value = np.ones(2, np.float32)
        _, state = chain.update(value, chain.init(value), value)
    except MISFITS as error:
        reason = str(error).partition("\n")[0]
        raise SettingsError(
            f"outer.optimizer is {settings.optimizer} with arguments {settings.arguments}, which "
            f"cannot take an outer step: {reason}"
        ) from error
    for name, array in state.items():
        if array.dtype.kind not in "biuf":
            raise SettingsError(
                f"outer.optimizer is {settings.optimizer}; its state {name} is {array.dtype}, "
                "which the journal cannot hold"
            )
    return chain
