"""A Task of one's own in a file beside its config: fits a line through noisy points.

`islands run examples/line.yaml` finds it as `line:Line`: the folder of the file that a command
reads is searched for tasks, and so is the one it is started in. A learner on another host needs
this file too, in the folder it is started in or installed as a package.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands import Task, TaskState
from islands.tasks.data.shards import ShardKey

BATCHES_PER_SHARD = 100
Points = NDArray[np.float32]  # x and y, one row each


@dataclass(frozen=True)
class Line(Task[Points]):
    """y = slope · x + offset, found from points; a token is a point.

    Attributes:
        slope: Of the line that the points lie on.
        offset: Of that line.
        noise: Standard deviation of the points around it.
        points: Per batch.
    """

    slope: float = 3.0
    offset: float = -1.0
    noise: float = 0.1
    points: int = 32

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Start from a random slope."""
        return TaskState((jax.random.normal(key, ()), jnp.zeros(())))

    def loss(
        self, params: PyTree, state: PyTree, batch: Points, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Mean square of what is left."""
        slope, offset = params
        x, y = batch
        return jnp.mean(jnp.square(slope * x + offset - y)), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Plain gradient descent."""
        return optax.sgd(learning_rate)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Points, int]]:
        """Points drawn from the place in the data, so that every host draws the same there."""
        for place in range(position, BATCHES_PER_SHARD):
            rng = np.random.default_rng((shard.pass_index, shard.shard, place))
            x = rng.standard_normal(self.points)
            y = self.slope * x + self.offset + self.noise * rng.standard_normal(self.points)
            yield np.stack([x, y]).astype(np.float32), place + 1

    def tokens(self, batch: Points) -> int:
        """Points."""
        return int(batch.shape[1])

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """The line that was found."""
        slope, offset = params
        return {"slope": float(slope), "offset": float(offset)}
