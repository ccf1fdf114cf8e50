"""Handwritten digits: a small perceptron learns the images that scikit-learn brings with it.

`islands run examples/digits.yaml` trains it. A token is an image.
"""

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

from islands import Task, TaskState
from islands.protocol.errors import DataError
from islands.tasks.data.shards import ShardKey, ShardPlan

PIXELS, CLASSES = 64, 10
HELD_OUT = 6  # one image in this many is for validation

Records = tuple[NDArray[np.float32], NDArray[np.int32]]


class Images(NamedTuple):
    """A batch: float32[rows, 64] from 0 to 1, int32[rows], and 1 for an image, 0 for padding."""

    pixels: NDArray[np.float32]
    digits: NDArray[np.int32]
    weight: NDArray[np.float32]


@dataclass(frozen=True)
class Digits(Task[Images]):
    """Classification of 8 × 8 images into ten digits.

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
            "hidden": _dense(one, PIXELS, self.hidden),
            "output": _dense(other, self.hidden, CLASSES),
        }
        return TaskState(params)

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return AdamW."""
        return optax.adamw(learning_rate)

    def loss(
        self, params: PyTree, state: PyTree, batch: Images, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Compute the cross-entropy in nats per image."""
        scores = _scores(params, jnp.asarray(batch.pixels))
        rows = optax.softmax_cross_entropy_with_integer_labels(scores, batch.digits)
        return jnp.sum(rows * batch.weight) / jnp.sum(batch.weight), state

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Images, int]]:
        """Yield the batches of a shard; a position counts images, and the last batch is padded."""
        (pixels, digits), _ = records()
        plan = ShardPlan(len(pixels), self.shard_count, self.seed)
        for members, after in plan.groups(shard, position, self.rows):
            fill = np.zeros(self.rows, np.int64)
            fill[: len(members)] = members
            weight = (np.arange(self.rows) < len(members)).astype(np.float32)
            yield Images(pixels[fill], digits[fill], weight), after

    def tokens(self, batch: Images) -> int:
        """Return the number of images, without padding."""
        return int(batch.weight.sum())

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return the share of unseen images that are recognised."""
        _, (pixels, digits) = records()
        return {"val_accuracy": float(np.mean(np.argmax(_scores(params, pixels), -1) == digits))}


@jax.jit
def _scores(params: PyTree, pixels: Float[Array, "b 64"]) -> Float[Array, "b 10"]:
    hidden = jax.nn.relu(pixels @ params["hidden"]["weight"] + params["hidden"]["bias"])
    scores: Array = hidden @ params["output"]["weight"] + params["output"]["bias"]
    return scores


def _dense(key: PRNGKeyArray, inputs: int, outputs: int) -> dict[str, Array]:
    weight = jax.random.normal(key, (inputs, outputs)) * inputs**-0.5
    return {"weight": weight, "bias": jnp.zeros(outputs)}


@cache
def records() -> tuple[Records, Records]:
    """Return the images and digits for training, and those for validation."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(
            "the digits come with scikit-learn, which is not installed; install it with: "
            "pip install 'islands[tasks]'"
        ) from error
    found, classes = load_digits(return_X_y=True)
    pixels, digits = (found / 16).astype(np.float32), classes.astype(np.int32)
    unseen = np.arange(len(pixels)) % HELD_OUT == 0
    return (pixels[~unseen], digits[~unseen]), (pixels[unseen], digits[unseen])
