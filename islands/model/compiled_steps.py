"""The functions of one task under one layout, and what of them all trainers of a process share.

They are compiled ahead of time (`compiled_functions.py`). The docstring of a function says what it
donates.

Parameters and state are handled as flat tuples of leaves. The *local* leaves are those of the
layout: trainable parameters, then the leaves of the state that are merged, then, where moments are
merged, those of the optimizer's state, but for second moments that are estimated from how the first
ones change (`second_moments.py`). The *frozen* leaves are parameters that are not trained. The
*carried* leaves are those of the state that are not merged. An optimizer that needs a tree gets the
task's own, with `None` in the place of frozen leaves.
"""

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, UInt

from islands.layout.fragments import plan
from islands.layout.leaves import MOMENTS_PREFIX, STATE_PREFIX, Layout, Leaf
from islands.layout.leaves import Role as LeafRole
from islands.model.compiled_functions import CompiledFunctions
from islands.model.device_transfer import Leaves
from islands.model.model import MOMENT_PIECE_BYTES
from islands.model.moment_pieces import plan_moments, words_of
from islands.model.moment_plan import MomentPlan
from islands.model.second_moments import (
    Decays,
    Kept,
    SecondMoment,
    count_of,
    decays_of,
    first_of,
)
from islands.protocol.settings.choices import Pattern
from islands.tasks.task import Task, TaskState, path_of
from islands.tasks.task_trace import (
    checked_loss,
    checked_optimizer,
    optax_promotion,
    refuse_integers,
    start_of,
)

SQUARES = frozenset(("nu", "nu_max", "v", "v_row", "v_col", "sum_of_squares"))
"""Names of Optax for averages of squares, which are never negative."""


class CompiledSteps:
    """Shapes, layout and functions of a task, and where those are kept that are compiled.

    Args:
        task: The task to train.
        count: Number of fragments asked for.
        pattern: How leaves are spread over fragments.
        min_piece_bytes: Least size of a fragment's largest piece.
        merges_moments: Whether the arrays of the optimizer's state are merged like parameters, but
            for second moments that first ones tell.

    Attributes:
        unmeasured: Paths of second moments that are averaged although first ones lie beside them,
            as the optimizer does not show by which decays it averages them, or changes these.

    Raises:
        TaskError: The task's parameters cannot be trained; the sentence says which and why.
        SettingsError: The fragments asked for cannot be made.
    """

    def __init__(
        self,
        task: Task[PyTree],
        count: int,
        pattern: Pattern,
        min_piece_bytes: int,
        *,
        merges_moments: bool = False,
    ) -> None:
        self.task = task
        shapes = start_of(task)
        flat, self._treedef = jax.tree_util.tree_flatten_with_path(shapes[0])
        paths = [path_of(keys) for keys, _ in flat]
        refuse_integers(task, paths, [leaf for _, leaf in flat])
        self._trains = [task.trainable(path) for path in paths]
        leaves = [
            Leaf(path, tuple(x.shape), str(x.dtype), task.role(path), task.stack(path))
            for (path, (_, x)), trains in zip(
                zip(paths, flat, strict=True), self._trains, strict=True
            )
            if trains
        ]
        self._trained = len(leaves)
        flat, self._state_treedef = jax.tree_util.tree_flatten_with_path(shapes[1])
        self._averages = [_merges(task, path_of(keys), leaf) for keys, leaf in flat]
        leaves += [
            Leaf(STATE_PREFIX + path_of(keys), tuple(x.shape), str(x.dtype), LeafRole.STATE)
            for (keys, x), averages in zip(flat, self._averages, strict=True)
            if averages
        ]
        self._kept = len(leaves)
        flat, self._moments_treedef = jax.tree_util.tree_flatten_with_path(
            jax.eval_shape(self._first_moments, shapes[0]) if merges_moments else ()
        )
        moments = [(path_of(keys), leaf) for keys, leaf in flat]
        estimated = self._estimated(shapes[0], dict(moments))
        self._merged = [_is_moment(leaf) and path not in estimated for path, leaf in moments]
        self.unmeasured: tuple[str, ...] = _unmeasured(dict(moments), estimated)
        self._squares = [
            not SQUARES.isdisjoint(path.split("/"))
            for (path, _), merged in zip(moments, self._merged, strict=True)
            if merged
        ]
        parameters = {leaf.path: leaf for leaf in leaves[: self._trained]}
        beside: dict[str, str] = {}
        for (path, x), merged in zip(moments, self._merged, strict=True):
            if merged:
                shape = tuple(x.shape)
                own = _parameter_of(path, shape, parameters)
                stack = own.stack if own else 1
                named = MOMENTS_PREFIX + path
                leaves.append(Leaf(named, shape, str(x.dtype), LeafRole.STATE, stack))
                if own:
                    beside[named] = own.path
        self.second_moments = self._numbered(estimated, [path for path, _ in moments])
        labels = {"task": type(task).__name__, **task.labels()}
        self.layout: Layout = plan(
            leaves,
            count=count,
            pattern=pattern,
            min_piece_bytes=min_piece_bytes,
            labels=labels,
            beside=beside,
        )
        self._shapes: tuple[PyTree, PyTree] = shapes
        self.functions = CompiledFunctions()

    @cached_property
    def moments(self) -> MomentPlan:
        """How the inner optimizer's state and the carried leaves are cut into pieces, by shapes."""

        def held(params: PyTree, state: PyTree) -> PyTree:
            moments = self.optimizer_state(self.split(params)[0])
            return words_of((moments, self.split_state(state)[1]))

        return plan_moments(jax.eval_shape(held, *self._shapes), MOMENT_PIECE_BYTES)

    def init(self, key: PRNGKeyArray) -> tuple[Leaves, Leaves, Leaves]:
        """Compute the initial local, frozen and carried leaves, each in a buffer of its own."""
        params, state = _copied(_tree(self.task.init(key)))
        trainable, frozen = self.split(params)
        averaged, carried = self.split_state(state)
        moments: Leaves = ()
        if any(self._merged):
            moments = self._split_moments(self._whole_moments(trainable))[0]
        return (*trainable, *averaged, *moments), frozen, carried

    def trained(self, local: Sequence[PyTree]) -> Sequence[PyTree]:
        """Return the local leaves that are parameters."""
        return local[: self._trained]

    @property
    def freezes(self) -> bool:
        """Whether some parameters are not trained."""
        return not all(self._trains)

    def split(self, params: PyTree) -> tuple[Leaves, Leaves]:
        """Split a tree of parameters into trainable and frozen leaves."""
        pairs = list(zip(jax.tree.leaves(params), self._trains, strict=True))
        return tuple(x for x, trains in pairs if trains), tuple(x for x, t in pairs if not t)

    def join(self, trainable: Sequence[PyTree], frozen: Sequence[PyTree]) -> PyTree:
        """Rebuild the tree that `split` took apart, from arrays or from placeholders for them."""
        one, other = iter(trainable), iter(frozen)
        leaves = [next(one if trains else other) for trains in self._trains]
        return jax.tree.unflatten(self._treedef, leaves)

    @property
    def carries(self) -> bool:
        """Whether some leaves of the state are carried along without being merged."""
        return not all(self._averages)

    def split_state(self, state: PyTree) -> tuple[Leaves, Leaves]:
        """Split a state into leaves that are merged and leaves that are only carried."""
        pairs = list(zip(jax.tree.leaves(state), self._averages, strict=True))
        return tuple(x for x, merged in pairs if merged), tuple(x for x, m in pairs if not m)

    def join_state(self, averaged: Sequence[PyTree], carried: Sequence[PyTree]) -> PyTree:
        """Rebuild the state that `split_state` took apart."""
        one, other = iter(averaged), iter(carried)
        leaves = [next(one if merged else other) for merged in self._averages]
        return jax.tree.unflatten(self._state_treedef, leaves)

    def tree(self, local: Sequence[PyTree], frozen: Sequence[PyTree]) -> PyTree:
        """Build the tree of parameters from the local and the frozen leaves."""
        return self.join(local[: self._trained], frozen)

    def state_tree(self, local: Sequence[PyTree], carried: Sequence[PyTree]) -> PyTree:
        """Build the state from the local and the carried leaves."""
        return self.join_state(local[self._trained : self._kept], carried)

    def carried(self, key: PRNGKeyArray) -> Leaves:
        """Compute the initial carried leaves. It is traced, so unused parameters are dropped."""
        return self.split_state(_copied(_tree(self.task.init(key))[1]))[1]

    def optimizer_state(self, local: Leaves) -> PyTree:
        """Make a fresh state of the inner optimizer, but for what is merged. Nothing is donated.

        Behind its leaves follow, for each of `second_moments`, what is kept of it from merge to
        merge: first all of one kind, then all of the next.
        """
        whole = self._whole_moments(local[: self._trained])
        if not any(self._merged):
            return whole
        stay = self._split_moments(whole)[1]
        shapes = [stay[each.own].shape for each in self.second_moments] * len(Kept._fields)
        return (*stay, *(jnp.zeros(shape, jnp.float32) for shape in shapes))

    def _estimated(
        self, params: PyTree, moments: Mapping[str, jax.ShapeDtypeStruct]
    ) -> Mapping[str, Decays]:
        """Return the decays of those second moments that first ones tell, by their paths."""
        shapes = {path: leaf.shape for path, leaf in moments.items() if _is_moment(leaf)}
        if not shapes:
            return {}
        pairs = zip(jax.tree.leaves(params), self._trains, strict=True)
        tree = jax.tree.unflatten(self._treedef, [x if trains else None for x, trains in pairs])
        decays = decays_of(lambda: checked_optimizer(self.task, 0.0), tree)
        return {
            path: each
            for path, each in decays.items()
            if path in shapes and shapes.get(first_of(path) or "") == shapes[path]
        }

    def _numbered(
        self, estimated: Mapping[str, Decays], paths: Sequence[str]
    ) -> tuple[SecondMoment, ...]:
        """Return where the second moments of an optimizer's state with these paths are found."""
        merges = dict(zip(paths, self._merged, strict=True))
        local = [path for path in paths if merges[path]]
        stay = [path for path in paths if not merges[path]]
        n = len(estimated)
        return tuple(
            SecondMoment(
                first=self._kept + local.index(first_of(path) or ""),
                own=stay.index(path),
                kept=(len(stay) + number, len(stay) + n + number, len(stay) + 2 * n + number),
                count=stay.index(count_of(path)) if count_of(path) in stay else None,
                decays=decays,
            )
            for number, (path, decays) in enumerate(sorted(estimated.items()))
        )

    def _first_moments(self, params: PyTree) -> PyTree:
        return self._whole_moments(self.split(params)[0])

    def _whole_moments(self, trainable: Leaves) -> PyTree:
        with optax_promotion():
            optimizer = checked_optimizer(self.task, 0.0)
            return optimizer.init(self._trainable_tree(trainable))

    def _split_moments(self, whole: PyTree) -> tuple[Leaves, Leaves]:
        """Split an optimizer's state into leaves that are merged and leaves that are not."""
        pairs = list(zip(jax.tree.leaves(whole), self._merged, strict=True))
        return tuple(x for x, merged in pairs if merged), tuple(x for x, m in pairs if not m)

    def _join_moments(self, local: Leaves, optimizer_state: PyTree) -> PyTree:
        """Rebuild the optimizer's state that `_split_moments` took apart.

        The average of squares that are nearly 0 may be rounded below 0, and must have a root.
        """
        if not any(self._merged):
            return optimizer_state
        moments = zip(self._squares, local[self._kept :], strict=True)
        one = (jnp.maximum(x, 0) if square else x for square, x in moments)
        other = iter(optimizer_state)
        leaves = [next(one if merged else other) for merged in self._merged]
        return jax.tree.unflatten(self._moments_treedef, leaves)

    def step(
        self,
        local: Leaves,
        optimizer_state: PyTree,
        carried: Leaves,
        frozen: Leaves,
        batch: PyTree,
        key: PRNGKeyArray,
        count: UInt[Array, ""],
        learning_rate: Float[Array, ""],
    ) -> tuple[Leaves, PyTree, Leaves, Float[Array, ""]]:
        """Take one inner step. The first three arguments are donated."""
        key = jax.random.fold_in(key, count)
        state = self.state_tree(local, carried)
        trainable = local[: self._trained]

        def loss_of(leaves: Leaves) -> tuple[Float[Array, ""], PyTree]:
            return checked_loss(self.task, self.join(leaves, frozen), state, batch, key)

        (loss, next_state), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
        tree = self._trainable_tree(trainable)
        with optax_promotion():
            optimizer = checked_optimizer(self.task, learning_rate)
            slopes = self._trainable_tree(gradients)
            whole = self._join_moments(local, optimizer_state)
            updates, whole = optimizer.update(slopes, whole, tree, value=loss, grad=slopes)
            stepped = optax.apply_updates(tree, updates)
        averaged, carried = self.split_state(next_state)
        moments: Leaves = ()
        if any(self._merged):
            held = optimizer_state[self._merged.count(False) :]
            moments, stay = self._split_moments(whole)
            whole = (*stay, *held)
        return (*jax.tree.leaves(stepped), *averaged, *moments), whole, carried, loss

    def _trainable_tree(self, trainable: Leaves) -> PyTree:
        return self.join(trainable, [None] * self._trains.count(False))


def compiled_steps_for(
    task: Task[PyTree],
    count: int,
    pattern: Pattern,
    min_piece_bytes: int,
    *,
    merges_moments: bool = False,
) -> CompiledSteps:
    """Return this process's `CompiledSteps` of a task; a task without a hash gets its own."""
    make = CompiledSteps if type(task).__hash__ is None else _program
    with _PROGRAMS_LOCK:
        return make(task, count, pattern, min_piece_bytes, merges_moments=merges_moments)


_PROGRAMS_LOCK = threading.Lock()
_program = lru_cache(maxsize=8)(CompiledSteps)


@jax.jit
def _copied(tree: PyTree) -> PyTree:
    """Copy the leaves into new buffers: an array that a task returns twice cannot be donated."""
    return jax.tree.map(lambda x: jnp.array(x, dtype=x.dtype, copy=True), tree)


def copied_words(leaf: Array) -> Array:
    """Copy a leaf into a new buffer, a random key as the words it is made of."""
    return jnp.copy(words_of(leaf))


def _merges(task: Task[PyTree], path: str, leaf: jax.ShapeDtypeStruct) -> bool:
    """Whether a leaf of the state is merged: only a floating leaf has an average."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size and task.averaged(path))


def _is_moment(leaf: jax.ShapeDtypeStruct) -> bool:
    """Whether a leaf of an optimizer's state has an average: an array, no count and no rate."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.ndim and leaf.size)


def _unmeasured(
    moments: Mapping[str, jax.ShapeDtypeStruct], estimated: Mapping[str, Decays]
) -> tuple[str, ...]:
    """Return the second moments that lie beside first ones, but are not estimated."""
    shapes = {path: leaf.shape for path, leaf in moments.items() if _is_moment(leaf)}
    beside = (path for path in shapes if shapes.get(first_of(path) or "") == shapes[path])
    return tuple(path for path in beside if path not in estimated)


def _parameter_of(path: str, shape: tuple[int, ...], parameters: Mapping[str, Leaf]) -> Leaf | None:
    """Return the parameter whose moment lies at a path of the optimizer's state, if there is one.

    Optax keeps moments in trees like that of the parameters, so the path ends with theirs; of
    several such ends, the longest is taken.
    """
    parts = path.split("/")
    ends = ("/".join(parts[first:]) for first in range(len(parts)))
    found = (parameters[end] for end in ends if end in parameters)
    return next((leaf for leaf in found if leaf.shape == shape), None)


def _tree(start: TaskState) -> tuple[PyTree, PyTree]:
    return start.params, start.state
