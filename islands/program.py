"""The compiled functions of one task under one layout, shared by all trainers of a process.

Functions are compiled ahead of time, under a lock: three learners that start together compile
once, and a step never finds itself compiling because another thread was first. What a function
donates is written beside it.

The parameters are handled as a flat tuple of trainable leaves and a flat tuple of frozen ones.
Where an optimizer needs a tree it gets the task's own, with `None` in the place of frozen leaves.
"""

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import optax
from jax.stages import Compiled
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from islands.errors import TaskError
from islands.fragments import plan
from islands.layout import Fragment, Layout, Leaf, Pattern
from islands.task import Task, TaskState, path_of

Leaves = tuple[Array, ...]


class Program:
    """Shapes, layout and compiled functions of a task.

    Args:
        task: What is trained.
        count: Fragments asked for.
        pattern: How leaves are spread over fragments.
        min_piece_bytes: Least size of a fragment's largest piece.

    Raises:
        TaskError: The task's parameters cannot be trained; the sentence says which and why.
        SettingsError: The fragments asked for cannot be made.
    """

    def __init__(
        self, task: Task[PyTree], count: int, pattern: Pattern, min_piece_bytes: int
    ) -> None:
        self.task = task
        shapes = jax.eval_shape(lambda key: _tree(task.init(key)), jax.random.key(0))
        flat, self._treedef = jax.tree_util.tree_flatten_with_path(shapes[0])
        paths = [path_of(keys) for keys, _ in flat]
        self._trains = [task.trainable(path) for path in paths]
        leaves = [
            Leaf(path, tuple(x.shape), str(x.dtype), task.role(path), task.stack(path))
            for (path, (_, x)), trains in zip(
                zip(paths, flat, strict=True), self._trains, strict=True
            )
            if trains
        ]
        labels = {"task": type(task).__name__, **task.labels()}
        self.layout: Layout = plan(
            leaves, count=count, pattern=pattern, min_piece_bytes=min_piece_bytes, labels=labels
        )
        self._lock = threading.Lock()
        self._compiled: dict[object, Compiled] = {}

    def init(self, key: PRNGKeyArray) -> tuple[Leaves, Leaves, PyTree]:
        """Trainable leaves, frozen leaves and state, each in a buffer of its own."""
        own = partial(jax.tree.map, lambda x: jnp.array(x, dtype=jnp.asarray(x).dtype, copy=True))
        params, state = own(_tree(self.task.init(key)))
        trainable, frozen = self.split(params)
        return trainable, frozen, state

    def split(self, params: PyTree) -> tuple[Leaves, Leaves]:
        """A tree of parameters as trainable and frozen leaves."""
        pairs = list(zip(jax.tree.leaves(params), self._trains, strict=True))
        return tuple(x for x, trains in pairs if trains), tuple(x for x, t in pairs if not t)

    def join(self, trainable: Sequence[Array | None], frozen: Sequence[Array | None]) -> PyTree:
        """The tree of parameters that `split` took apart."""
        one, other = iter(trainable), iter(frozen)
        leaves = [next(one if trains else other) for trains in self._trains]
        return jax.tree.unflatten(self._treedef, leaves)

    def compile(
        self,
        key: object,
        function: Callable[..., PyTree],
        arguments: Sequence[PyTree],
        donate: tuple[int, ...] = (),
    ) -> Compiled:
        """The function compiled for arguments of these shapes; at most once for a key."""
        with self._lock:
            if key not in self._compiled:
                jitted = jax.jit(function, donate_argnums=donate)
                self._compiled[key] = jitted.lower(*arguments).compile()
            return self._compiled[key]

    def optimizer_state(self, trainable: Leaves) -> PyTree:
        """A fresh state of the inner optimizer. Nothing is donated."""
        return self.task.optimizer(0.0).init(self._trainable_tree(trainable))

    def step(
        self,
        trainable: Leaves,
        optimizer_state: PyTree,
        state: PyTree,
        frozen: Leaves,
        batch: PyTree,
        key: PRNGKeyArray,
        count: Int[Array, ""],
        learning_rate: Float[Array, ""],
    ) -> tuple[Leaves, PyTree, PyTree, Float[Array, ""]]:
        """One inner step. The first three arguments are donated."""
        key = jax.random.fold_in(key, count)

        def loss_of(leaves: Leaves) -> tuple[Float[Array, ""], PyTree]:
            return self.task.loss(self.join(leaves, frozen), state, batch, key)

        (loss, next_state), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
        tree = self._trainable_tree(trainable)
        updates, optimizer_state = self.task.optimizer(learning_rate).update(
            self._trainable_tree(gradients), optimizer_state, tree
        )
        stepped = optax.apply_updates(tree, updates)
        return tuple(jax.tree.leaves(stepped)), optimizer_state, next_state, loss

    def _trainable_tree(self, trainable: Leaves) -> PyTree:
        return self.join(trainable, [None] * self._trains.count(False))


@lru_cache(maxsize=8)
def program_for(task: Task[PyTree], count: int, pattern: Pattern, min_piece_bytes: int) -> Program:
    """The one program of this process for a task and a plan."""
    return Program(task, count, pattern, min_piece_bytes)


def gather(fragment: Fragment, leaves: Sequence[Array]) -> Float[Array, " n"]:
    """A fragment's flat float32 value, from the leaves it touches. Nothing is donated."""
    places = _places(fragment)
    parts = [
        leaves[places[piece.leaf]].reshape(-1)[piece.start : piece.stop].astype(jnp.float32)
        for piece in fragment.pieces
    ]
    return jnp.concatenate(parts)


def difference(
    fragment: Fragment, dtype: str, base: Float[Array, " n"], leaves: Sequence[Array]
) -> Float[Array, " n"]:
    """Base − local, subtracted in float32 and cast to `dtype`. Nothing is donated."""
    return (base - gather(fragment, leaves)).astype(dtype)


def blend(
    fragment: Fragment,
    leaves: Sequence[Array],
    value: Float[Array, " n"],
    keep: Float[Array, ""],
) -> Leaves:
    """Mix: keep · local + (1 − keep) · value, in float32, cast to each leaf's dtype.

    The leaves are donated. With `keep` 0 the value is taken as it is, whatever the leaves hold.
    """
    local = gather(fragment, leaves)
    mixed = jnp.where(keep == 0, value, keep * local + (1 - keep) * value)
    places = _places(fragment)
    adopted = list(leaves)
    for piece in fragment.pieces:
        leaf = adopted[places[piece.leaf]]
        part = mixed[piece.offset : piece.offset + piece.size].astype(leaf.dtype)
        flat = jax.lax.dynamic_update_slice(leaf.reshape(-1), part, (piece.start,))
        adopted[places[piece.leaf]] = flat.reshape(leaf.shape)
    return tuple(adopted)


def touched(fragment: Fragment) -> list[int]:
    """Indices of the leaves a fragment touches, ascending."""
    return sorted({piece.leaf for piece in fragment.pieces})


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every floating element of a tree is finite."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.all(jnp.stack([jnp.isfinite(x).all() for x in leaves]))


def _places(fragment: Fragment) -> dict[int, int]:
    return {leaf: place for place, leaf in enumerate(touched(fragment))}


def _tree(start: object) -> tuple[PyTree, PyTree]:
    if not isinstance(start, TaskState):
        raise TaskError(f"the task's init returned a {type(start).__name__}, not a TaskState")
    return start.params, start.state
