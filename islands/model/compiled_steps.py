"""The functions of one task under one layout, which all trainers of a process share.

Each of the three trees of a task is split in two (`Split`), and handled as flat tuples of leaves.
Parameters are trained or *frozen*. Leaves of the state are averaged or *carried*. Leaves of the
optimizer's state are merged or stay with the learner; where moments are merged, only counts stay,
and second moments that are estimated from how the first ones change (`second_moments.py`). The
first halves are the *local* leaves, in the order of the layout (`Local`). An optimizer that needs a
tree gets the task's own, with `None` in the place of frozen leaves.
"""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, UInt

from islands.layout.fragments import plan
from islands.layout.leaves import MOMENTS_PREFIX, STATE_PREFIX, Layout, Leaf
from islands.layout.leaves import Role as LeafRole
from islands.model.device_transfer import Leaves
from islands.model.interfaces import MOMENT_PIECE_BYTES
from islands.model.moment_pieces import plan_moments, words_of
from islands.model.moment_plan import MomentPlan
from islands.model.placement import CompiledFunctions
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
    checked_metrics,
    checked_optimizer,
    optax_promotion,
    refuse_integers,
    start_of,
)

SQUARES = frozenset(("nu", "nu_max", "v", "v_row", "v_col", "sum_of_squares"))
"""Names of Optax for averages of squares, which are never negative."""

AVERAGES = SQUARES.union(
    ["mu", "trace", "ema", "m", "m1", "m2", "n", "e_g", "e_x", "exp_avg", "exp_avg_sq"]
)
"""Names of Optax for trees of averages beside the parameters, which learners may average in turn.

Others are no averages: sums that are emptied after some steps (`acc_grads` of `MultiSteps`), former
parameters, projections.
"""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Split:
    """A tree whose leaves are of two kinds: for each of them, whether it is of the first kind."""

    structure: jax.tree_util.PyTreeDef
    firsts: tuple[bool, ...]

    def first(self, beside: Iterable[Item]) -> list[Item]:
        return [item for item, first in zip(beside, self.firsts, strict=True) if first]

    def second(self, beside: Iterable[Item]) -> list[Item]:
        return [item for item, first in zip(beside, self.firsts, strict=True) if not first]

    def split(self, tree: PyTree) -> tuple[Leaves, Leaves]:
        leaves = jax.tree.leaves(tree)
        return tuple(self.first(leaves)), tuple(self.second(leaves))

    def join(self, first: Sequence[PyTree], second: Sequence[PyTree] | None) -> PyTree:
        """Rebuild the tree that `split` took apart, from arrays or from placeholders for them."""
        one = iter(first)
        other = iter([None] * self.firsts.count(False) if second is None else second)
        leaves = [next(one if is_first else other) for is_first in self.firsts]
        return jax.tree.unflatten(self.structure, leaves)


class Local(NamedTuple):
    """The local leaves, in the order of the layout."""

    trained: Leaves
    averaged: Leaves
    moments: Leaves


class Start(NamedTuple):
    """The leaves with which a learner begins, but for its optimizer's state."""

    local: Leaves
    frozen: Leaves
    carried: Leaves


class CompiledSteps:
    """Shapes, layout and functions of a task, and where those are kept that are compiled.

    With `merges_moments` the arrays of the optimizer's state are merged like parameters, but for
    second moments that are estimated from first ones.

    Attributes:
        unmeasured: Paths of second moments that are averaged although first ones lie beside them,
            as the optimizer does not show by which decays it averages them, or changes these.
        alone: Paths of arrays in the optimizer's state that are not merged, as their trees have no
            name of `AVERAGES`.
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
        self._shapes: tuple[PyTree, PyTree] = start_of(task)
        params, structure = _flat(self._shapes[0])
        refuse_integers(task, params)
        self._params = Split(structure, tuple(task.trainable(path) for path, _ in params))
        state, structure = _flat(self._shapes[1])
        self._state = Split(structure, tuple(_merges(task, *pair) for pair in state))
        trained = tuple(shape for _, shape in self._params.first(params))
        moments, structure = _flat(
            jax.eval_shape(self._whole_moments, trained) if merges_moments else ()
        )
        arrays = {path: x.shape for path, x in moments if _is_moment(x)}
        beside_first = [
            path for path in arrays if first_of(path) and arrays.get(first_of(path)) == arrays[path]
        ]
        estimated = self._estimated(trained, beside_first)
        parameters = [
            Leaf(path, tuple(x.shape), str(x.dtype), task.role(path), task.stack(path))
            for path, x in self._params.first(params)
        ]
        by_path = {leaf.path: leaf for leaf in parameters}
        merged = {path for path in arrays if _tree_of(path, by_path) in AVERAGES}
        self.alone: tuple[str, ...] = tuple(path for path in arrays if path not in merged)
        self._moments = Split(
            structure, tuple(path in merged and path not in estimated for path, _ in moments)
        )
        self._squares = [
            not SQUARES.isdisjoint(path.split("/")) for path, _ in self._moments.first(moments)
        ]
        self.unmeasured = tuple(path for path in beside_first if path not in estimated)
        self.second_moments = self._numbered(estimated, [path for path, _ in moments])
        leaves = [_state_leaf(STATE_PREFIX + path, x) for path, x in self._state.first(state)]
        beside = {}
        for path, x in self._moments.first(moments):
            own = _parameter_of(path, tuple(x.shape), by_path)
            leaf = _state_leaf(MOMENTS_PREFIX + path, x, own.stack if own else 1)
            leaves.append(leaf)
            if own:
                beside[leaf.path] = own.path
        self.layout: Layout = plan(
            [*parameters, *leaves],
            count=count,
            pattern=pattern,
            min_piece_bytes=min_piece_bytes,
            labels={"task": type(task).__name__, **task.labels()},
            beside=beside,
        )
        self.functions = CompiledFunctions()

    @cached_property
    def moments(self) -> MomentPlan:
        """How the inner optimizer's state and the carried leaves are cut into pieces, by shapes."""

        def held(params: PyTree, state: PyTree) -> PyTree:
            moments = self.optimizer_state(self._params.split(params)[0])
            return words_of((moments, self._state.split(state)[1]))

        return plan_moments(jax.eval_shape(held, *self._shapes), MOMENT_PIECE_BYTES)

    def init(self, key: PRNGKeyArray) -> Start:
        """Compute the initial leaves, each in a buffer of its own."""
        params, state = _copied(_tree(self.task.init(key)))
        trained, frozen = self._params.split(params)
        averaged, carried = self._state.split(state)
        moments: Leaves = ()
        if any(self._moments.firsts):
            moments = self._moments.split(self._whole_moments(trained))[0]
        return Start((*trained, *averaged, *moments), frozen, carried)

    def parts(self, local: Sequence[PyTree]) -> Local:
        trained = self._params.firsts.count(True)
        kept = trained + self._state.firsts.count(True)
        return Local(tuple(local[:trained]), tuple(local[trained:kept]), tuple(local[kept:]))

    @property
    def freezes(self) -> bool:
        return not all(self._params.firsts)

    @property
    def carries(self) -> bool:
        return not all(self._state.firsts)

    def tree(self, local: Sequence[PyTree], frozen: Sequence[PyTree]) -> PyTree:
        return self._params.join(self.parts(local).trained, frozen)

    def state_tree(self, local: Sequence[PyTree], carried: Sequence[PyTree]) -> PyTree:
        return self._state.join(self.parts(local).averaged, carried)

    def carried(self, key: PRNGKeyArray) -> Leaves:
        """Compute the initial carried leaves. It is traced, so unused parameters are dropped."""
        return self._state.split(_copied(_tree(self.task.init(key))[1]))[1]

    def optimizer_state(self, local: Leaves) -> PyTree:
        """Make a fresh state of the inner optimizer, but for what is merged. Nothing is donated.

        Behind its leaves follow, for each of `second_moments`, what is kept of it from merge to
        merge: first all of one kind, then all of the next.
        """
        whole = self._whole_moments(self.parts(local).trained)
        if not any(self._moments.firsts):
            return whole
        stay = self._moments.split(whole)[1]
        shapes = [stay[each.own].shape for each in self.second_moments] * len(Kept._fields)
        return (*stay, *(jnp.zeros(shape, jnp.float32) for shape in shapes))

    def _estimated(
        self, trained: Sequence[PyTree], beside_first: Collection[str]
    ) -> Mapping[str, Decays]:
        """Return the decays of those second moments that are estimated, by their paths."""
        if not beside_first:
            return {}
        tree = self._params.join(trained, None)
        decays = decays_of(lambda: checked_optimizer(self.task, 0.0), tree)
        return {path: each for path, each in decays.items() if path in beside_first}

    def _numbered(
        self, estimated: Mapping[str, Decays], paths: Sequence[str]
    ) -> tuple[SecondMoment, ...]:
        """Return the indices of what belongs to the second moments of a state with these paths."""
        local, stay = self._moments.first(paths), self._moments.second(paths)
        kept = self._params.firsts.count(True) + self._state.firsts.count(True)
        n = len(estimated)
        return tuple(
            SecondMoment(
                first=kept + local.index(first_of(path)),
                own=stay.index(path),
                kept=(len(stay) + number, len(stay) + n + number, len(stay) + 2 * n + number),
                count=stay.index(count_of(path)) if count_of(path) in stay else None,
                decays=decays,
            )
            for number, (path, decays) in enumerate(sorted(estimated.items()))
        )

    def _whole_moments(self, trained: Leaves) -> PyTree:
        with optax_promotion():
            optimizer = checked_optimizer(self.task, 0.0)
            return optimizer.init(self._params.join(trained, None))

    def _join_moments(self, merged: Leaves, optimizer_state: PyTree) -> PyTree:
        """Rebuild the optimizer's state.

        The average of squares that are nearly 0 may be rounded below 0, and must have a root.
        """
        if not any(self._moments.firsts):
            return optimizer_state
        pairs = zip(self._squares, merged, strict=True)
        moments = [jnp.maximum(x, 0) if square else x for square, x in pairs]
        return self._moments.join(moments, optimizer_state)

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
    ) -> tuple[Leaves, PyTree, Leaves, Float[Array, ""], dict[str, Float[Array, ""]]]:
        """Take one inner step; its loss and metrics come last. Three arguments are donated."""
        key = jax.random.fold_in(key, count)
        parts = self.parts(local)
        state = self._state.join(parts.averaged, carried)

        def loss_of(trained: Leaves) -> tuple[Float[Array, ""], tuple[PyTree, PyTree]]:
            params = self._params.join(trained, frozen)
            loss, *beside = checked_loss(self.task, params, state, batch, key)
            return loss, tuple(beside)

        found, gradients = jax.value_and_grad(loss_of, has_aux=True)(parts.trained)
        loss, (next_state, metrics) = found
        tree = self._params.join(parts.trained, None)
        with optax_promotion():
            optimizer = checked_optimizer(self.task, learning_rate)
            slopes = self._params.join(gradients, None)
            whole = self._join_moments(parts.moments, optimizer_state)
            updates, whole = optimizer.update(slopes, whole, tree, value=loss, grad=slopes)
            stepped = optax.apply_updates(tree, updates)
            params = self._params.join(parts.trained, frozen)
            metrics |= self.task.metrics(params, slopes, updates)
        averaged, carried = self._state.split(next_state)
        moments: Leaves = ()
        if any(self._moments.firsts):
            kept_between_merges = optimizer_state[self._moments.firsts.count(False) :]
            moments, stay = self._moments.split(whole)
            whole = (*stay, *kept_between_merges)
        leaves = (*jax.tree.leaves(stepped), *averaged, *moments)
        return leaves, whole, carried, loss, checked_metrics(metrics, self.task.metrics)


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


def _tree_of(path: str, parameters: Collection[str]) -> str:
    """Return the name of the tree in which a leaf of an optimizer's state lies beside a parameter.

    That is `mu` of `0/mu/layers/kernel`; it is empty if the leaf lies beside none.
    """
    parts = path.split("/")
    ends = (first for first in range(1, len(parts) + 1) if "/".join(parts[first:]) in parameters)
    return next((parts[first - 1] for first in ends), "")


def _flat(
    tree: PyTree,
) -> tuple[list[tuple[str, jax.ShapeDtypeStruct]], jax.tree_util.PyTreeDef]:
    """Return the leaves of a tree by their paths, and its structure."""
    flat, structure = jax.tree_util.tree_flatten_with_path(tree)
    return [(path_of(keys), leaf) for keys, leaf in flat], structure


def _state_leaf(path: str, like: jax.ShapeDtypeStruct, stack: int = 1) -> Leaf:
    return Leaf(path, tuple(like.shape), str(like.dtype), LeafRole.STATE, stack)


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
