"""A tree of JAX arrays as the model that a learner exchanges, and the state of its optimizer.

Structure, dtypes and shardings of the tree stay as they are. The leaves that the run's layout names
are exchanged; the others pass through.

Two loops can give each other their optimizers' state if its arrays have equal paths, dtypes and
shapes. A path that ends with that of a parameter of the same shape, as those of optax do, has the
run's path of this parameter, so `rename` holds for the moments, too. Arrays may lie on other
devices than the parameters. Leaves that are no arrays of JAX pass through.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from operator import is_
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from numpy.typing import NDArray

from islands.layout.leaves import Layout
from islands.learner.boundary import Dispatched
from islands.loops.own_model import NO_METRICS, NamedArrays, OwnMoments, check_finite, leaf_indices
from islands.model.device_transfer import PieceShape, cut_of, read_rows
from islands.model.interfaces import MomentsCopy
from islands.model.jax_model import JaxModel
from islands.model.leaf_checks import check_alive, check_array, check_stored, place_of
from islands.model.moment_pieces import MomentSnapshot, is_key, words_of
from islands.model.moment_plan import MomentLeaf, Part
from islands.model.placement import CompiledFunctions
from islands.protocol.errors import TaskError
from islands.protocol.settings.run import RunSettings
from islands.tasks.task import path_of

NOT_TOLD = (
    "the run was joined with an optimizer: hand in its state after the last step at each boundary "
    "and in done, and go on with run.optimizer"
)
NOT_JOINED = (
    "an optimizer was handed in, but the run was joined without one: islands.join takes it, too"
)

Loss = Array | NDArray[np.generic] | np.generic | float

Known = Mapping[str, tuple[str, tuple[int, ...]]]
"""The run's path and the shape of each parameter, by its path in the user's tree."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was dispatched: one number of its result, its loss and its metrics."""

    number: Array
    given: Loss | None
    measured: Mapping[str, Loss]

    def loss(self) -> float | None:
        """Wait until the step is done, and return its loss; nan if its result is no number."""
        number = float(self.number)
        if not isfinite(number):
            return number
        return None if self.given is None else _mean(self.given)

    def metrics(self) -> dict[str, float]:
        means = {name: _mean(value) for name, value in self.measured.items()}
        return {name: mean for name, mean in means.items() if mean is not None}


def _mean(value: Loss) -> float | None:
    """Return the mean of an array; None if it was deleted, as by a step that it was donated to."""
    if isinstance(value, jax.Array) and value.is_deleted():
        return None
    return float(np.mean(np.asarray(value, np.float64)))


def checked(value: object, name: str = "loss") -> Loss:
    if isinstance(value, jax.Array) and not (
        value.is_fully_addressable or value.is_fully_replicated
    ):
        raise TaskError(
            f"the {name} lies in parts on devices of several processes, of which each can read "
            "only its own: hand in its mean, computed by the step"
        )
    if isinstance(value, jax.Array | np.ndarray | np.generic | float | int) and np.size(value):
        return value
    raise TaskError(
        f"the {name} is a {type(value).__name__}; hand in a number or an array of them, or nothing"
    )


class JoinedModel(OwnMoments, JaxModel):
    """The trained leaves of a user's tree; the optimizer that steps them is the user's own."""


class JaxParameters:
    """The user's tree of parameters, whose arguments are those of `islands.join`.

    An array that cannot be handled, or leaves other than the layout's, are a `TaskError`.
    """

    def __init__(
        self,
        params: PyTree,
        layout: Layout,
        settings: RunSettings,
        *,
        donate: bool = True,
        rename: Mapping[str, str] | None = None,
        trainable: Callable[[str], bool] = lambda _: True,
        optimizer: PyTree = None,
    ) -> None:
        flat, tree = jax.tree_util.tree_flatten_with_path(params)
        self._tree: Any = tree
        paths = [path_of(keys) for keys, _ in flat]
        self._leaves: list[Array] = [leaf for _, leaf in flat]
        shapes = [tuple(np.shape(leaf)) for leaf in self._leaves]
        dtypes = [str(getattr(leaf, "dtype", "")) for leaf in self._leaves]
        self._indices = leaf_indices(layout, paths, shapes, dtypes, rename or {}, trainable)
        functions = CompiledFunctions()
        self.model = JoinedModel.of(layout, self._chosen(), donate=donate, functions=functions)
        self._given: list[ref[Array]] = []  # the trained leaves of the last boundary
        self._moments: JaxMoments | None = None
        if optimizer is not None:
            to_run = rename or {}
            known = {
                path: (to_run.get(path, path), shape)
                for path, shape in zip(paths, shapes, strict=True)
            }
            self._moments = self.model.moments = JaxMoments(optimizer, known, functions)
        self.model.prepare(settings.precision.of_snapshots, settings.adoption)
        self.model.prepare_giving()
        check_finite(self.model)

    @property
    def diverged(self) -> bool:
        return self.model.take_divergence()

    def take(self, params: PyTree, optimizer: PyTree = None) -> bool:
        """Hold the tree after a step, and the optimizer's state; was there a step?

        There was none if all trained leaves are the arrays that the last boundary returned, or
        those that it was given: what it returned is held on then.
        """
        if (optimizer is None) != (self._moments is None):
            raise TaskError(NOT_TOLD if optimizer is None else NOT_JOINED)
        leaves, tree = jax.tree.flatten(params)
        if self._tree != tree:
            raise TaskError(
                f"boundary was given a tree of another structure than the run was joined with: "
                f"{tree} in place of {self._tree}"
            )
        if self._moments is not None:
            self._moments.take(optimizer)
        self._leaves = leaves
        held, chosen = self.model.local, self._chosen()
        self.model.local = chosen
        before, self._given = self._given, [ref(leaf) for leaf in chosen]
        if _same(chosen, tuple(each() for each in before)):
            self.model.local = held
            return False
        return not _same(chosen, held)

    def give(self) -> PyTree:
        for index, leaf in zip(self._indices, self.model.local, strict=True):
            self._leaves[index] = leaf
        return jax.tree.unflatten(self._tree, self._leaves)

    @property
    def optimizer(self) -> PyTree:
        return None if self._moments is None else self._moments.give()

    checked = staticmethod(checked)

    def dispatched(self, loss: object, metrics: Mapping[str, object] = NO_METRICS) -> Dispatched:
        known = {name: checked(value, name) for name, value in metrics.items()}
        return Step(self.model.mark(), None if loss is None else checked(loss), known)

    def _chosen(self) -> tuple[Array, ...]:
        return tuple(self._leaves[index] for index in self._indices)


def _same(leaves: Sequence[Array], others: Sequence[Array | None]) -> bool:
    return len(leaves) == len(others) and all(map(is_, leaves, others))


def check_leaves(params: PyTree, trainable: Callable[[str], bool]) -> None:
    """Refuse parameters of which a trained leaf is no array, before the hub learns of them."""
    for keys, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        path = path_of(keys)
        if trainable(path):
            check_array(path, leaf)


# --- the optimizer's state --------------------------------------------------------------------


class JaxMoments(NamedArrays):
    """The state of a user's optimizer, whose arrays this process must be able to read."""

    def __init__(self, state: PyTree, known: Known, functions: CompiledFunctions) -> None:
        flat, tree = jax.tree_util.tree_flatten_with_path(state)
        self._tree: Any = tree
        self._leaves: list[Any] = [leaf for _, leaf in flat]
        self._functions = functions
        self._named = {
            index: f"{path_of(keys)} of the optimizer's state"
            for index, (keys, leaf) in enumerate(flat)
            if isinstance(leaf, jax.Array)
        }
        for index, name in self._named.items():
            check_alive(name, self._leaves[index])
            check_stored(name, self._leaves[index])
        paths = {
            index: shared_path(path_of(flat[index][0]), self._leaves[index].shape, known)
            for index in self._named
        }
        self._indices = sorted(paths, key=lambda index: (paths[index], index))
        leaves = []
        for index in self._indices:
            words = jax.eval_shape(words_of, self._leaves[index])
            leaves.append(MomentLeaf(paths[index], np.dtype(words.dtype), words.shape))
        super().__init__(leaves)

    def take(self, state: PyTree) -> None:
        leaves, tree = jax.tree.flatten(state)
        if tree != self._tree:
            raise TaskError(
                "boundary was given an optimizer's state of another structure than the run was "
                f"joined with: {tree} in place of {self._tree}"
            )
        for index, name in self._named.items():
            _check_like(name, leaves[index], self._leaves[index])
        self._leaves = leaves

    def give(self) -> PyTree:
        return jax.tree.unflatten(self._tree, self._leaves)

    def prepare(self) -> None:
        for parts in self.plan.pieces:
            for part in parts:
                self._reading(part)

    def read(self, piece: int) -> MomentsCopy:
        calls = [self._reading(part) for part in self.plan.pieces[piece]]
        arrays = tuple(compiled(*arguments) for compiled, arguments in calls)
        for array in arrays:
            array.copy_to_host_async()
        return MomentSnapshot(arrays)

    def _put(self, leaf: int, values: NDArray[np.generic]) -> None:
        index = self._indices[leaf]
        self._leaves[index] = put_like(self._leaves[index], values)

    def _reading(self, part: Part) -> tuple[Any, tuple[Array, np.int32]]:
        index = self._indices[part.leaf]
        name, leaf = self._named[index], self._leaves[index]
        check_alive(name, leaf)
        check_stored(name, leaf)
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


def _check_like(name: str, leaf: Any, joined_with: Array) -> None:  # noqa: ANN401  the user's
    """Refuse a leaf that is no array of the dtype and shape that the run was joined with."""
    if not isinstance(leaf, jax.Array):
        found = f"a {type(leaf).__name__}"
    elif (leaf.dtype, leaf.shape) != (joined_with.dtype, joined_with.shape):
        found = f"{leaf.dtype}{list(leaf.shape)}"
    else:
        return
    raise TaskError(
        f"{name} is {found}, and was {joined_with.dtype}{list(joined_with.shape)} when the run was "
        "joined: a step has to keep dtypes and shapes, as peers are told them; join with a state "
        "like those that the step returns, or without an optimizer"
    )


def shared_path(path: str, shape: tuple[int, ...], known: Known) -> str:
    """Return the path by which other loops know a leaf of the state.

    Its parameter is the one of the longest path with which this path ends.
    """
    words = path.split("/")
    for start in range(len(words)):
        found = known.get("/".join(words[start:]))
        if found is not None and found[1] == shape:
            return "/".join((*words[:start], found[0]))
    return path


def put_like(leaf: Array, values: NDArray[np.generic]) -> Array:
    """Put values, or the words of random keys, on the devices of an array, which may be deleted.

    An array that JAX was free to move stays so.
    """
    if leaf.committed:
        new = place_of(leaf.sharding).put(values, leaf.sharding)
    else:
        new = jnp.array(values)
    return jax.random.wrap_key_data(new, impl=jax.random.key_impl(leaf)) if is_key(leaf) else new
