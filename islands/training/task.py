"""A task joins a model to its data: what a user writes to train something of their own.

A task needs five methods: `init`, `loss`, `optimizer`, `batches`, `tokens`. The parameters are
any pytree of arrays or scalars. Everything else has a default.

Two learners of one process share their compiled functions when their tasks are equal. A frozen
dataclass is equal when its fields are; any other class only to itself.

Optax chains see one learner's whole tree, so an inner clip by global norm is that of plain
training. An outer chain sees one fragment at a time, and a norm in it is the fragment's.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from islands.data.shards import ShardKey
from islands.layout.leaves import Role, default_role

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class TaskState:
    """What a task starts from.

    Attributes:
        params: Parameters; those that `Task.trainable` lets through are trained and merged.
        state: What the loss carries from step to step without training it, such as running
            averages. Floating leaves are merged by average, unless `Task.averaged` says otherwise;
            the others are each learner's own.
    """

    params: PyTree
    state: PyTree = None


class Task(ABC, Generic[Batch]):
    """Model, loss, inner optimizer and data of a run. Remote hosts build it by its name."""

    @property
    def shards(self) -> int:
        """Virtual shards of one pass over the data; every host must say the same."""
        return 64

    @abstractmethod
    def init(self, key: PRNGKeyArray) -> TaskState:
        """The initial parameters and state; equal keys must give equal values.

        It is traced for its shapes and run once for its values; decorate the arithmetic with
        `jax.jit` where it has many small operations.
        """

    @abstractmethod
    def loss(
        self, params: PyTree, state: PyTree, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """The scalar to minimise, and the next state. Traced; `key` differs in every step."""

    @abstractmethod
    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """The inner optimizer. The rate is passed in, so no step count hides in the chain.

        One whose `update` asks for the loss (`value`) or for the gradient (`grad`) is given them.
        """

    @abstractmethod
    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Batch, int]]:
        """Batches of a shard from a position on, each with the position after it.

        A batch is a pytree of NumPy arrays. Batches should all have the same shapes: each new
        set of shapes compiles anew. Position 0 is the start of the shard, and a position advances
        by at most the batch's tokens: what a learner reports beyond that is read again by whoever
        gets its shard next. There are no batches at the end of the shard, nor beyond it.
        """

    @abstractmethod
    def tokens(self, batch: Batch) -> int:
        """Tokens that a step on this batch counts as processed; at least 1."""

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Figures of merit of what is published; none by default.

        `state` has the averages of those leaves that are merged, and the initial values of the
        others. A task without a state may leave the argument out.
        """
        return {}

    def trainable(self, path: str) -> bool:
        """Whether the parameter at a path is trained and merged; all by default."""
        return True

    def role(self, path: str) -> Role:
        """How the parameter at a path is merged; by default by its name."""
        return default_role(path)

    def averaged(self, path: str) -> bool:
        """Whether the floating leaf of the state at a path is merged, by average; all by default.

        What is merged is part of the model's size, of what travels, and of what is exported; a
        large leaf that `evaluate` does not need, such as an average of parameters, may be left
        out, and is then handed on from learner to learner with the optimizer's moments.
        """
        return True

    def stack(self, path: str) -> int:
        """How many tensors are stacked along the leading axes at a path; 1 by default."""
        return 1

    def labels(self) -> Mapping[str, str]:
        """Further facts all hosts must share, such as the digest of the corpus."""
        return {}


def path_of(keys: tuple[object, ...]) -> str:
    """A leaf's path in words: the keys of `jax.tree_util`, joined by `/`."""
    return "/".join(str(_word(key)) for key in keys)


def _word(key: object) -> object:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return key
