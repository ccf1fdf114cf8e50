"""A task joins a model to its data; users write one to train a model of their own.

A task needs five methods: `init`, `loss`, `optimizer`, `batches`, `tokens`. The parameters are
any pytree of arrays or scalars. Everything else has a default.

Two learners of one process share their compiled functions when their tasks are equal. A frozen
dataclass is equal when its fields are; an instance of any other class equals only itself.

The inner Optax chain sees one learner's whole tree, so a clip by global norm does what it does in
ordinary training. An outer chain sees one fragment at a time, so its norms are the fragment's.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from islands.layout.leaves import Role, default_role
from islands.tasks.data.shards import ShardKey

Batch = TypeVar("Batch")

Metrics = Mapping[str, jax.typing.ArrayLike]
"""Scalars of a training step by their names, which are the same in every step; see `METRICS_MAX`.
They are shown and recorded for each learner, and decide nothing.
"""


@dataclass(frozen=True, slots=True)
class TaskState:
    """The initial parameters and state of a task.

    Attributes:
        params: The parameters; those that `Task.trainable` selects are trained and merged.
        state: Values that the loss carries from step to step without training them, such as
            running averages. Floating leaves are merged by average, unless `Task.averaged` says
            otherwise; each learner keeps its own copy of the other leaves.
    """

    params: PyTree
    state: PyTree = None


class Task(ABC, Generic[Batch]):
    """The model, loss, inner optimizer and data of a run. Remote hosts build it by its name."""

    @property
    def shards(self) -> int:
        return 64

    @abstractmethod
    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return the initial parameters and state; equal keys must give equal values.

        It is traced for its shapes and run once for its values; decorate the arithmetic with
        `jax.jit` where it has many small operations.
        """

    @abstractmethod
    def loss(
        self, params: PyTree, state: PyTree, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree] | tuple[Float[Array, ""], PyTree, Metrics]:
        """Return the scalar to minimise and the next state. Traced; `key` differs in every step.

        Metrics of the step that the loss computes anyway, such as an accuracy, may follow as a
        third item.
        """

    @abstractmethod
    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return the inner optimizer. The rate is an argument, so the chain hides no step count.

        An `update` that takes the loss (`value`) or the gradient (`grad`) is given them.
        """

    @abstractmethod
    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Batch | None, int]]:
        """Yield the batches of a shard from a position on, each with the position after it.

        A batch is a pytree of NumPy arrays. Batches should all have the same shapes: each new
        set of shapes compiles anew. Position 0 is the start of the shard, and a position advances
        by at most the batch's tokens: the learner that leases the shard next reads any excess
        again. At the end of the shard and beyond it, nothing is yielded.

        Where data arrives while the run goes on, None may be yielded in place of a batch: there is
        nothing at the moment, and the iterator is asked again later.
        """

    @abstractmethod
    def tokens(self, batch: Batch) -> int:
        """Return how many tokens a step on this batch counts as processed; at least 1."""

    def metrics(self, params: PyTree, gradients: PyTree, updates: PyTree) -> Metrics:
        """Return metrics of a step beside those of the loss, as a gradient's norm; none by default.

        It is traced. In trees of gradients and updates, frozen parameters are None.
        """
        return {}

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return figures of merit of the published values; none by default.

        `state` holds the averages of the merged leaves and the initial values of the others. A
        task without a state may omit the argument.
        """
        return {}

    def trainable(self, path: str) -> bool:
        """Whether the parameter at a path is trained and merged; by default, all are."""
        return True

    def role(self, path: str) -> Role:
        """Return how the parameter at a path is merged; by default, its name decides."""
        return default_role(path)

    def averaged(self, path: str) -> bool:
        """Whether the floating leaf of the state at a path is averaged; by default, all are.

        A merged leaf adds to the model's size, to the traffic and to the exported file. A large
        leaf that `evaluate` does not need, such as an average of parameters, may be left out; it
        is then passed from learner to learner with the optimizer's moments.
        """
        return True

    def stack(self, path: str) -> int:
        """Return how many tensors are stacked along the leading axes at a path; 1 by default."""
        return 1

    def labels(self) -> Mapping[str, str]:
        """Return further facts that all hosts must share, such as the digest of the corpus."""
        return {}


@runtime_checkable
class Sampler(Protocol):
    """A task whose model continues a text, as `islands model generate` asks it to."""

    def sample(
        self, params: PyTree, prompt: bytes, count: int, *, temperature: float, seed: int
    ) -> Iterator[bytes]:
        """Yield what the model adds to a prompt, in pieces; equal seeds give equal texts.

        Args:
            params: parameters of the task, such as published ones.
            prompt: text to continue, at least one byte.
            count: how many tokens to add.
            temperature: temperature of the softmax; towards 0 the likeliest token is taken.
            seed: seed of the sampling.
        """


def path_of(keys: tuple[object, ...]) -> str:
    """Return a leaf's path as text: the keys of `jax.tree_util`, joined by `/`."""
    return "/".join(str(_word(key)) for key in keys)


def _word(key: object) -> object:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return key
