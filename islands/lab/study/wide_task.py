"""A task whose batches are several of another one's: data-parallel training as one learner.

The gradient of the mean loss over M batches is what M learners average if they synchronise at every
step. So one learner that reads M batches at a time trains as those would, to the rounding of sums,
where the loss is a mean over rows that count alike. Its batches follow one another in a shard, so a
task should shuffle its records: else they resemble each other more than those of M shards.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from islands.layout.leaves import Role
from islands.model.evaluation import evaluated
from islands.tasks.data.shards import ShardKey
from islands.tasks.task import Metrics, Task, TaskState


@dataclass(frozen=True)
class WideTask(Task[PyTree]):
    """Another task, of whose batches `times` make one.

    Their leaves are joined along the first axis, as a mesh would cut them. What is left of a shard,
    fewer batches than make one, is not read.
    """

    task: Task[Any]
    times: int

    @property
    def shards(self) -> int:
        return self.task.shards

    def init(self, key: PRNGKeyArray) -> TaskState:
        return self.task.init(key)

    def loss(
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree] | tuple[Float[Array, ""], PyTree, Metrics]:
        return self.task.loss(params, state, batch, key)

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return self.task.optimizer(learning_rate)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[PyTree, int]]:
        each = self.task.batches(shard, position)
        while len(taken := list(islice(each, self.times))) == self.times:
            joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(b for b, _ in taken))
            yield joined, taken[-1][1]

    def tokens(self, batch: PyTree) -> int:
        return self.task.tokens(batch)

    def metrics(self, params: PyTree, gradients: PyTree, updates: PyTree) -> Metrics:
        return self.task.metrics(params, gradients, updates)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        return evaluated(self.task.evaluate, params, state)

    def trainable(self, path: str) -> bool:
        return self.task.trainable(path)

    def role(self, path: str) -> Role:
        return self.task.role(path)

    def averaged(self, path: str) -> bool:
        return self.task.averaged(path)

    def stack(self, path: str) -> int:
        return self.task.stack(path)

    def labels(self) -> Mapping[str, str]:
        return {**self.task.labels(), "batches per step": str(self.times)}
