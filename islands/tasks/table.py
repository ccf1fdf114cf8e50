"""A task on a table: a small residual network tells two kinds of tumour apart by thirty figures.

The rows are those of scikit-learn's breast cancer data (569 of them), each column with the mean and
the deviation of its training rows taken off. Nothing in the network depends on the batch:

    x ← x W + b;  x ← x + relu(norm(x) U_l) D_l  for each layer;  scores = norm(x) S

where norm(x) = x / rms(x), and D_l starts at zero.
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

from islands.tasks.data.shards import ShardKey, ShardPlan
from islands.tasks.rows import Records, held_out, padded_batches, table_of_scikit_learn
from islands.tasks.task import Task, TaskState

_COLUMNS = 30
_CLASSES = 2
_VALIDATION_SHARE = 5  # one row in this many is for validation


class TableBatch(NamedTuple):
    """Rows of the table and their classes.

    Attributes:
        columns: float32[rows, 30], standardised.
        classes: int32[rows].
        weight: float32[rows], 1 for a record, 0 for a padding row.
    """

    columns: NDArray[np.float32]
    classes: NDArray[np.int32]
    weight: NDArray[np.float32]


@dataclass(frozen=True)
class Table(Task[TableBatch]):
    """Classification of rows of numbers; a token is a row.

    Attributes:
        width: Width of the residual stream.
        layers: Number of residual layers.
        rows: Rows per batch; each host may choose its own.
        shard_count: Virtual shards of one pass.
        seed: Seed of the order of the data.
    """

    width: int = 64
    layers: int = 2
    rows: int = 32
    shard_count: int = 8
    seed: int = 0

    @property
    def shards(self) -> int:
        """Number of virtual shards in one pass over the data."""
        return self.shard_count

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return the initial parameters."""
        first, last, *keys = jax.random.split(key, 2 + self.layers)
        hidden = 2 * self.width
        layers = [
            {"up": _normal(k, self.width, hidden), "down": jnp.zeros((hidden, self.width))}
            for k in keys
        ]
        entry = {"weight": _normal(first, _COLUMNS, self.width), "bias": jnp.zeros(self.width)}
        scores = _normal(last, self.width, _CLASSES)
        return TaskState({"entry": entry, "layers": layers, "scores": scores})

    def loss(
        self, params: PyTree, state: PyTree, batch: TableBatch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Compute the cross-entropy in nats per row."""
        scores = _scores(params, jnp.asarray(batch.columns))
        rows = optax.softmax_cross_entropy_with_integer_labels(scores, batch.classes)
        return jnp.sum(rows * batch.weight) / jnp.sum(batch.weight), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return AdamW."""
        return optax.adamw(learning_rate, weight_decay=0.1)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[TableBatch, int]]:
        """Yield the batches of a shard; a position counts rows."""
        known = _load()[0]
        plan = ShardPlan(len(known[0]), self.shard_count, self.seed)
        for some, weight, after in padded_batches(known, plan, shard, position, self.rows):
            yield TableBatch(*some, weight), after

    def tokens(self, batch: TableBatch) -> int:
        """Return the number of rows, without padding."""
        return int(batch.weight.sum())

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return the share of unseen rows that are classified correctly."""
        columns, classes = _load()[1]
        found = np.argmax(_scores_jitted(params, columns), axis=-1)
        return {"val_accuracy": float(np.mean(found == classes))}


@cache
def _load() -> tuple[Records, Records]:
    """Load the training and validation rows with their classes.

    Raises:
        DataError: scikit-learn is not installed.
    """
    columns, kinds = table_of_scikit_learn("breast_cancer.csv", header_lines=1)
    unseen = held_out(len(columns), _VALIDATION_SHARE)
    seen = columns[~unseen]
    columns = ((columns - seen.mean(0)) / seen.std(0)).astype(np.float32)
    classes = kinds.astype(np.int32)
    return (columns[~unseen], classes[~unseen]), (columns[unseen], classes[unseen])


def _normal(key: PRNGKeyArray, inputs: int, outputs: int) -> Float[Array, "i o"]:
    drawn: Array = jax.random.normal(key, (inputs, outputs)) * inputs**-0.5
    return drawn


def _scores(params: PyTree, columns: Float[Array, "b 30"]) -> Float[Array, "b 2"]:
    x = columns @ params["entry"]["weight"] + params["entry"]["bias"]
    for layer in params["layers"]:
        x = x + jax.nn.relu(_norm(x) @ layer["up"]) @ layer["down"]
    scores: Array = _norm(x) @ params["scores"]
    return scores


def _norm(x: Float[Array, "b d"]) -> Float[Array, "b d"]:
    scale: Array = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6)
    return x * scale


_scores_jitted = jax.jit(_scores)
