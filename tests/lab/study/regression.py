"""A regression that trains in milliseconds, for studies in tests."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands.tasks.data.shards import ShardKey, ShardPlan
from islands.tasks.task import Task, TaskState

Floats = NDArray[np.float32]

TASK = "tests.lab.study.regression:Regression"
NOISE = 0.5


@dataclass(frozen=True)
class Regression(Task[tuple[Floats, Floats]]):
    """y = A·x + noise; the loss is the mean square of what is left."""

    width: int = 8
    rows: int = 4
    seed: int = 0

    @property
    def shards(self) -> int:
        return 8

    def init(self, key: PRNGKeyArray) -> TaskState:
        return TaskState({"weight": jax.random.normal(key, (self.width, self.width))})

    def loss(
        self, params: PyTree, state: PyTree, batch: tuple[Floats, Floats], key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        x, y = map(jnp.asarray, batch)
        return jnp.mean(jnp.square(x @ params["weight"] - y)), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.sgd(learning_rate, momentum=0.5)

    def batches(
        self, shard: ShardKey, position: int
    ) -> Iterator[tuple[tuple[Floats, Floats], int]]:
        for records, after in ShardPlan(4096, self.shards, self.seed).groups(shard, position, 1):
            rng = np.random.default_rng((self.seed, int(records[0])))
            x = rng.standard_normal((self.rows, self.width))
            y = x @ self.truth() + NOISE * rng.standard_normal((self.rows, self.width))
            yield (x.astype(np.float32), y.astype(np.float32)), after

    def tokens(self, batch: tuple[Floats, Floats]) -> int:
        return len(batch[0])

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        off = np.asarray(params["weight"]) - self.truth()
        return {"loss": float(np.square(off).mean()), "share": float(np.abs(off).max())}

    def truth(self) -> NDArray[np.float64]:
        return np.random.default_rng(self.width).standard_normal((self.width, self.width))
