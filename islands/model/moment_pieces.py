"""The inner optimizer's state as pieces of bytes, to send to a peer that lost its own.

The leaves follow one another in the order of the optimizer's tree (`moment_plan.py`).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from islands.model.moment_plan import MomentLeaf, MomentPlan, plan_leaves
from islands.tasks.task import path_of


@dataclass(frozen=True, slots=True)
class MomentSnapshot:
    """The parts of a piece in buffers of their own, on their way to the host."""

    arrays: tuple[Array, ...]

    def buffer(self) -> memoryview:
        parts = [np.asarray(each).reshape(-1).view(np.uint8) for each in self.arrays]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return whole.data.toreadonly()

    def finite(self) -> bool:
        floating = [x for x in self.arrays if jnp.issubdtype(x.dtype, jnp.floating)]
        return all(bool(np.isfinite(np.asarray(x)).all()) for x in floating)

    def ready(self) -> bool:
        return all(bool(x.is_ready()) for x in self.arrays)  # type: ignore[attr-defined]


def plan_moments(state: PyTree, most_bytes: int) -> MomentPlan:
    """Plan how a state of arrays or shapes, with random keys as words, is cut into pieces."""
    flat = jax.tree_util.tree_leaves_with_path(state)
    leaves = [MomentLeaf(path_of(keys), np.dtype(x.dtype), tuple(x.shape)) for keys, x in flat]
    return plan_leaves(leaves, most_bytes)


def words_of(state: PyTree) -> PyTree:
    """Replace each random key of a state by the words it is made of; works under a trace, too."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, state)


def is_key(x: Array) -> bool:
    """Whether an array holds random keys, which have no bytes of their own."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
