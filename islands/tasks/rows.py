"""Tasks on small tables: what they share, and the files of scikit-learn that they read."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands.protocol.errors import DataError
from islands.tasks.data.shards import ShardKey, ShardPlan
from islands.tasks.task import Task

Records = tuple[NDArray[np.float32], NDArray[np.int32]]
"""The figures of each record, and its class."""


class RowBatch(NamedTuple):
    """Records and their classes.

    Attributes:
        figures: float32[rows, columns].
        classes: int32[rows].
        weight: float32[rows], 1 for a record, 0 for a padding row.
    """

    figures: NDArray[np.float32]
    classes: NDArray[np.int32]
    weight: NDArray[np.float32]


@dataclass(frozen=True)
class Rows(Task[RowBatch]):
    """Classification of the rows of a table; a token is a row.

    Attributes:
        rows: Rows per batch; each host may choose its own.
        shard_count: Virtual shards of one pass.
        seed: Seed of the order of the data.
    """

    rows: int = 32
    shard_count: int = 8
    seed: int = 0

    @staticmethod
    @abstractmethod
    def records() -> tuple[Records, Records]:
        """Return the records for training and for validation.

        Raises:
            DataError: They cannot be loaded.
        """

    @staticmethod
    @abstractmethod
    def scores(params: PyTree, figures: Float[Array, "b n"]) -> Float[Array, "b k"]:
        """Compute the score of each class for each row."""

    @property
    def shards(self) -> int:
        """Number of virtual shards in one pass over the data."""
        return self.shard_count

    def loss(
        self, params: PyTree, state: PyTree, batch: RowBatch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Compute the cross-entropy in nats per row."""
        scores = self.scores(params, jnp.asarray(batch.figures))
        rows = optax.softmax_cross_entropy_with_integer_labels(scores, batch.classes)
        return jnp.sum(rows * batch.weight) / jnp.sum(batch.weight), state

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[RowBatch, int]]:
        """Yield the batches of a shard; a position counts rows.

        The last batch of a shard is filled with rows of weight 0.
        """
        figures, classes = self.records()[0]
        plan = ShardPlan(len(figures), self.shard_count, self.seed)
        for members, after in plan.groups(shard, position, self.rows):
            fill = np.zeros(self.rows, np.int64)
            fill[: len(members)] = members
            weight = (np.arange(self.rows) < len(members)).astype(np.float32)
            yield RowBatch(figures[fill], classes[fill], weight), after

    def tokens(self, batch: RowBatch) -> int:
        """Return the number of rows, without padding."""
        return int(batch.weight.sum())

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return the share of unseen rows that are classified correctly."""
        figures, classes = self.records()[1]
        found = np.argmax(_scores_jitted(self.scores, params, figures), axis=-1)
        return {"val_accuracy": float(np.mean(found == classes))}


@partial(jax.jit, static_argnums=0)
def _scores_jitted(
    scores: Callable[[PyTree, Float[Array, "b n"]], Array], params: PyTree, figures: Array
) -> Array:
    return scores(params, figures)


def table_of_scikit_learn(
    file: str, *, header_lines: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read a table that scikit-learn brings with it; the package is not imported.

    The import takes longer than most of what a restarted learner does until its first step.

    Args:
        file: its name in scikit-learn's folder of data.
        header_lines: lines before the first record.

    Returns:
        float64[records, columns], and the last column, float64[records], which tells the class.

    Raises:
        DataError: scikit-learn is not installed, or has no such file.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError(
            f"{file} comes with scikit-learn, which is not installed; install it with: "
            "pip install 'islands[tasks]'"
        )
    place = Path(package.origin).parent / "datasets" / "data" / file
    try:
        table = np.loadtxt(place, delimiter=",", skiprows=header_lines)
    except OSError as error:
        raise DataError(f"this version of scikit-learn does not bring {file}: {error}") from error
    return table[:, :-1], table[:, -1]


def held_out(count: int, one_in: int) -> NDArray[np.bool_]:
    """Return which of so many records are for validation: the first of every few."""
    first: NDArray[np.bool_] = np.arange(count) % one_in == 0
    return first
