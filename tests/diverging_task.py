"""A task that diverges while a file is there: first its learning rate is 100 times as high."""

import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree

from islands.tasks.data.shards import ShardKey
from islands.tasks.task import Task, TaskState

WIDTH, HIDDEN, CLASSES = 8, 16, 4
ROWS = 8
RATE_TIMES = 100.0
MISLABELLED = 0.1


class Diverging(Task[PyTree]):
    """Sorts noisy points into classes; each batch takes at least `step_s` to read.

    While the file `fault` exists, batches scale the gradient, which for SGD is the learning rate;
    once its text is `nan`, the loss is no number.
    """

    def __init__(self, fault: str = "", step_s: float = 0.004) -> None:
        self.fault, self.step_s = Path(fault), step_s

    def init(self, key: PRNGKeyArray) -> TaskState:
        first, second = jax.random.split(key)
        return TaskState(
            {
                "in": jax.random.normal(first, (WIDTH, HIDDEN)) / WIDTH**0.5,
                "out": jax.random.normal(second, (HIDDEN, CLASSES)) / HIDDEN**0.5,
            }
        )

    def _cross_entropy(self, params: PyTree, batch: PyTree) -> Array:
        logits = jnp.tanh(batch["x"] @ params["in"]) @ params["out"]
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]))

    def loss(
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        value, push = self._cross_entropy(params, batch), batch["push"]
        return push * value - jax.lax.stop_gradient((push - 1) * value), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.sgd(learning_rate)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[PyTree, int]]:
        for place in range(position, 64):
            time.sleep(self.step_s)  # noqa: TID251  a loader that takes time
            push = 1.0
            if self.fault.is_file():
                push = np.nan if "nan" in self.fault.read_text() else RATE_TIMES
            yield _rows((shard.pass_index, shard.shard, place), ROWS, push), place + 1

    def tokens(self, batch: PyTree) -> int:
        return len(batch["y"])

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        return {"cross_entropy": float(self._cross_entropy(params, _rows((1, 2, 3, 4), 1 << 14)))}


def _rows(seed: tuple[int, ...], rows: int, push: float = 1.0) -> PyTree:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, WIDTH)).astype(np.float32)
    wanted = 2 * (x[:, 0] * x[:, 1] > 0) + (x[:, 2] + x[:, 3] > 0)
    wrong = draw.random(rows) < MISLABELLED
    y = np.where(wrong, draw.integers(CLASSES, size=rows), wanted).astype(np.int32)
    return {"x": x, "y": y, "push": np.float32(push)}
