"""The second default task: a small perceptron learns scikit-learn's handwritten digits."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands.tasks.data.shards import ShardKey, ShardPlan
from islands.tasks.rows import Records, held_out, padded_batches, table_of_scikit_learn
from islands.tasks.task import Task, TaskState

_PIXELS = 64
_CLASSES = 10
_VALIDATION_SHARE = 6  # one image in this many is for validation


class DigitBatch(NamedTuple):
    """Images and their labels.

    Attributes:
        images: float32[rows, 64], from 0 to 1.
        labels: int32[rows], the digits shown.
        weight: float32[rows], 1 for a record, 0 for a padding row.
    """

    images: NDArray[np.float32]
    labels: NDArray[np.int32]
    weight: NDArray[np.float32]


@dataclass(frozen=True)
class Digits(Task[DigitBatch]):
    """Classification of 8 × 8 images into ten digits; a token is an image.

    Attributes:
        hidden: Width of the hidden layer.
        rows: Images per batch; each host may choose its own.
        shard_count: Virtual shards of one pass.
        seed: Seed of the order of the data.
    """

    hidden: int = 128
    rows: int = 32
    shard_count: int = 8
    seed: int = 0

    @property
    def shards(self) -> int:
        """Number of virtual shards in one pass over the data."""
        return self.shard_count

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return the initial parameters of two dense layers."""
        one, other = jax.random.split(key)
        params = {
            "hidden": _dense(one, _PIXELS, self.hidden),
            "output": _dense(other, self.hidden, _CLASSES),
        }
        return TaskState(params)

    def loss(
        self, params: PyTree, state: PyTree, batch: DigitBatch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Compute the cross-entropy in nats per image."""
        scores = _scores(params, jnp.asarray(batch.images))
        rows = optax.softmax_cross_entropy_with_integer_labels(scores, batch.labels)
        return jnp.sum(rows * batch.weight) / jnp.sum(batch.weight), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return AdamW."""
        return optax.adamw(learning_rate)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[DigitBatch, int]]:
        """Yield the batches of a shard; a position counts images."""
        known = _load()[0]
        plan = ShardPlan(len(known[0]), self.shard_count, self.seed)
        for some, weight, after in padded_batches(known, plan, shard, position, self.rows):
            yield DigitBatch(*some, weight), after

    def tokens(self, batch: DigitBatch) -> int:
        """Return the number of images, without padding rows."""
        return int(batch.weight.sum())

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return the share of unseen images that are recognised."""
        images, labels = _load()[1]
        found = np.argmax(_scores_jitted(params, images), axis=-1)
        return {"val_accuracy": float(np.mean(found == labels))}


@cache
def _load() -> tuple[Records, Records]:
    """Load the training and validation images with their labels.

    Raises:
        DataError: scikit-learn is not installed.
    """
    values, digits = table_of_scikit_learn("digits.csv.gz")
    images, labels = (values / 16).astype(np.float32), digits.astype(np.int32)
    unseen = held_out(len(images), _VALIDATION_SHARE)
    return (images[~unseen], labels[~unseen]), (images[unseen], labels[unseen])


def _dense(key: PRNGKeyArray, inputs: int, outputs: int) -> dict[str, Array]:
    weight = jax.random.normal(key, (inputs, outputs)) * inputs**-0.5
    return {"weight": weight, "bias": jnp.zeros(outputs)}


def _scores(params: PyTree, images: Float[Array, "b 64"]) -> Float[Array, "b 10"]:
    hidden = jax.nn.relu(images @ params["hidden"]["weight"] + params["hidden"]["bias"])
    scores: Array = hidden @ params["output"]["weight"] + params["output"]["bias"]
    return scores


_scores_jitted = jax.jit(_scores)
