"""The state of a user's optimizer as a tree of JAX arrays: read in pieces, replaced by a peer's.

Two loops can give each other their state if its arrays have equal paths, dtypes and shapes. Where a
path ends with that of a parameter whose shape the array has, as those of optax do, it is known by
the run's path of this parameter; so `rename` holds for the moments, too.

Arrays may lie on other devices than the parameters, as the counts of an optimizer that was made
outside of `jax.jit` do. What is no array of JAX passes through.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from numpy.typing import NDArray

from islands.model.compiled_functions import CompiledFunctions
from islands.model.leaf_checks import check_alive, check_stored, place_of
from islands.model.model import MOMENT_PIECE_BYTES, MomentsCopy
from islands.model.moment_pieces import MomentSnapshot, is_key, words_of
from islands.model.moment_plan import MomentLeaf, MomentPlan, Part, joined, plan_leaves
from islands.model.rectangles import PieceShape, cut_of, read_rows
from islands.protocol.errors import InvariantError, TaskError
from islands.tasks.task import path_of

Known = Mapping[str, tuple[str, tuple[int, ...]]]
"""The run's path and the shape of each parameter, by its path in the user's tree."""


class JaxMoments:
    """The state of a user's optimizer.

    Args:
        state: the tree.
        known: the parameters.
        functions: where compiled functions are kept.

    Raises:
        TaskError: an array cannot be read; the sentence names it and says why.
    """

    def __init__(self, state: PyTree, known: Known, functions: CompiledFunctions) -> None:
        flat, tree = jax.tree_util.tree_flatten_with_path(state)
        self._tree: Any = tree
        self._leaves: list[Any] = [leaf for _, leaf in flat]
        self._functions = functions
        self._told = {
            place: f"{path_of(keys)} of opt_state"
            for place, (keys, leaf) in enumerate(flat)
            if isinstance(leaf, jax.Array)
        }
        for place, told in self._told.items():
            check_alive(told, self._leaves[place])
            check_stored(told, self._leaves[place])
        paths = {
            place: shared_path(path_of(flat[place][0]), self._leaves[place].shape, known)
            for place in self._told
        }
        self._places = sorted(paths, key=lambda place: (paths[place], place))
        leaves = []
        for place in self._places:
            words = jax.eval_shape(words_of, self._leaves[place])
            leaves.append(MomentLeaf(paths[place], np.dtype(words.dtype), words.shape))
        self._plan: MomentPlan = plan_leaves(leaves, MOMENT_PIECE_BYTES)

    @property
    def schema(self) -> str:
        """Digest (hex) of paths, dtypes and shapes of the arrays; "" if there are none."""
        return self._plan.schema

    @property
    def count(self) -> int:
        """How many pieces the arrays are cut into."""
        return len(self._plan.pieces)

    def take(self, state: PyTree) -> None:
        """Hold the state after a step.

        Raises:
            TaskError: it has another structure than the one that joined, or an array of another
                dtype or shape.
        """
        leaves, tree = jax.tree.flatten(state)
        if tree != self._tree:
            raise TaskError(
                "boundary was given an opt_state of another structure than the run was joined "
                f"with: {tree} in place of {self._tree}"
            )
        for place, told in self._told.items():
            _check_like(told, leaves[place], self._leaves[place])
        self._leaves = leaves

    def give(self) -> PyTree:
        """Return the state to go on with."""
        return jax.tree.unflatten(self._tree, self._leaves)

    def prepare(self) -> None:
        """Compile what `read` will call."""
        for parts in self._plan.pieces:
            for part in parts:
                self._reading(part)

    def read(self, piece: int) -> MomentsCopy:
        """Dispatch a copy of a piece into new buffers, and start their copy to the host.

        Raises:
            TaskError: an array was deleted, or cannot be read where a step has put it.
        """
        arrays = []
        for part in self._plan.pieces[piece]:
            compiled, arguments = self._reading(part)
            arrays.append(compiled(*arguments))
        for array in arrays:
            array.copy_to_host_async()
        return MomentSnapshot(tuple(arrays))

    def load(self, pieces: Sequence[memoryview]) -> None:
        """Replace all arrays, each where it is.

        Raises:
            InvariantError: the pieces are of other sizes, or not finite; nothing was changed.
        """
        arrays = joined(self._plan, pieces)
        for values in arrays:
            if jnp.issubdtype(values.dtype, jnp.inexact) and not np.isfinite(values).all():
                raise InvariantError("moments that are not all finite numbers were given")
        for place, values in zip(self._places, arrays, strict=True):
            self._leaves[place] = put_like(self._leaves[place], values)

    def _reading(self, part: Part) -> tuple[Any, tuple[Array, np.int32]]:
        """Return the call that copies a part of an array into a new buffer."""
        place = self._places[part.leaf]
        told, leaf = self._told[place], self._leaves[place]
        check_alive(told, leaf)
        check_stored(told, leaf)
        leaf = words_of(leaf)
        devices, cut = place_of(leaf.sharding), cut_of(leaf.sharding, leaf.ndim)
        arguments = (leaf, np.int32(part.row_start))
        compiled = self._functions.compile(
            devices,
            ("rows", part.rows, part.leaf_rows, leaf.shape, str(leaf.dtype), cut),
            partial(read_rows, PieceShape(0, leaf.shape, part.leaf_rows, part.rows, cut)),
            arguments,
            parts_to=devices.whole,
        )
        return compiled, arguments


def _check_like(told: str, leaf: Any, joined_with: Array) -> None:  # noqa: ANN401  the user's
    """Refuse a leaf that cannot be given to a peer as the one that joined can.

    Args:
        told: what it is, for the sentence.
        leaf: what a step has put there.
        joined_with: an array with the dtype and shape of the one that joined.

    Raises:
        TaskError: it is no array of this dtype and shape.
    """
    if not isinstance(leaf, jax.Array):
        found = f"a {type(leaf).__name__}"
    elif (leaf.dtype, leaf.shape) != (joined_with.dtype, joined_with.shape):
        found = f"{leaf.dtype}{list(leaf.shape)}"
    else:
        return
    raise TaskError(
        f"{told} is {found}, and was {joined_with.dtype}{list(joined_with.shape)} when the run was "
        "joined: a step has to keep dtypes and shapes, as peers are told them; join with a state "
        "like those that the step returns, or without opt_state"
    )


def shared_path(path: str, shape: tuple[int, ...], known: Known) -> str:
    """Return by which path a leaf of the state is known to other loops.

    Args:
        path: its path in the tree.
        shape: its shape.
        known: the parameters; that with the longest path that ends this one is its own.
    """
    words = path.split("/")
    for start in range(len(words)):
        found = known.get("/".join(words[start:]))
        if found is not None and found[1] == shape:
            return "/".join((*words[:start], found[0]))
    return path


def put_like(leaf: Array, values: NDArray[np.generic]) -> Array:
    """Put values where an array is; one that JAX was free to move stays so.

    Args:
        leaf: the array, whose buffers may be gone.
        values: of its shape and dtype; of random keys, their words.
    """
    if leaf.committed:
        new = place_of(leaf.sharding).put(values, leaf.sharding)
    else:
        new = jnp.array(values)
    return jax.random.wrap_key_data(new, impl=jax.random.key_impl(leaf)) if is_key(leaf) else new
