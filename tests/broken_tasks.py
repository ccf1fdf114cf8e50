"""Tasks with one mistake each, on the line that ends in `# here`; `Sound` has none."""

import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, PRNGKeyArray, PyTree

from islands.tasks.data.shards import ShardKey
from islands.tasks.task import Task, TaskState


class Sound(Task[PyTree]):
    """Fits a line; keeps the contract."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        return TaskState({"w": jax.random.normal(key, (4,))}, {"count": jnp.int32(0)})

    def loss(
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        error = batch["x"] @ params["w"] - batch["y"]
        return jnp.mean(jnp.square(error)), {"count": state["count"] + 1}

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.adam(learning_rate)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[PyTree, int]]:
        for place in range(position, 8):
            x = np.random.default_rng((shard.shard, place)).standard_normal((2, 4))
            yield {"x": x.astype(np.float32), "y": x.sum(1).astype(np.float32)}, place + 1

    def tokens(self, batch: PyTree) -> int:
        return len(batch["y"])

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        return {"norm": float(jnp.linalg.norm(params["w"]))}


class WrongTraceLevel(Sound):
    """An NNX module that init made is changed inside the loss."""

    def __init__(self) -> None:
        self.layer = nnx.Linear(4, 1, rngs=nnx.Rngs(0))
        self.calls = nnx.Variable(jnp.zeros(()))

    def loss(
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        self.calls[...] = self.calls[...] + params["w"].sum()  # here
        return super().loss(params, state, batch, key)


class ChangedAux(Sound):
    """The state becomes a float in the loss."""

    def loss(
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        loss, _ = super().loss(params, state, batch, key)
        count = state["count"].astype(jnp.float32) * 0.9
        return loss, {"count": count}  # here


class EvaluateRaises(Sound):
    """A key that is not there."""

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        return {"norm": float(params["weights"].sum())}  # here


class LoaderRaises(Sound):
    """A record that cannot be parsed."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[PyTree, int]]:
        for batch, after in super().batches(shard, position):
            yield batch | {"y": np.float32(float("n/a"))}, after  # here


class IntegerLeaf(Sound):
    """A table of indices among the parameters."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        start = super().init(key)
        table = jnp.arange(4)
        return TaskState(start.params | {"table": table}, start.state)  # here


class StringsInBatch(Sound):
    """The words themselves instead of their indices."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[PyTree, int]]:
        for batch, after in super().batches(shard, position):
            yield batch | {"words": np.array(["a", "b"])}, after  # here


class ChanceInInit(Sound):
    """Draws from NumPy's global state."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        start = super().init(key)
        noise = np.random.standard_normal(4).astype(np.float32)  # noqa: NPY002  the mistake
        return TaskState({"w": start.params["w"] + noise}, start.state)  # here


class InfiniteStart(Sound):
    """Divides by zero."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        start = super().init(key)
        w = start.params["w"] / jnp.zeros(4)
        return TaskState({"w": w}, start.state)  # here


class InfiniteLoss(Sound):
    """A logarithm of zero."""

    def loss(
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        loss, state = super().loss(params, state, batch, key)
        return loss - jnp.log(jnp.zeros(())), state  # here


class InfiniteStep(Sound):
    """The square root of zero is a number, and its gradient is none."""

    def loss(
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        loss, state = super().loss(params, state, batch, key)
        return loss + jnp.sqrt(0 * params["w"].sum()), state  # here


class NoBatches(Sound):
    """Looks for a file of another name, finds none, gives nothing."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[PyTree, int]]:
        return iter(())  # here


class WrongPositions(Sound):
    """Forgets where it was asked to begin."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[PyTree, int]]:
        yield from super().batches(shard, 0)  # here


class FunctionLeaf(Sound):
    """An activation in the tree of parameters."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        return TaskState({**super().init(key).params, "activation": jax.nn.relu})  # here


class TooLarge(Sound):
    """Four tebibytes."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        start = super().init(key)
        table = jax.random.normal(key, (1 << 20, 1 << 20))
        return TaskState(start.params | {"table": table}, start.state)  # here


class LossOfRows(Sound):
    """A loss per row."""

    def loss(
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        error = batch["x"] @ params["w"] - batch["y"]
        return jnp.square(error), {"count": state["count"] + 1}  # here


class ClockInInit(Sound):
    """A seed of the hour."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        mine = jax.random.key(time.monotonic_ns() % (1 << 31))  # noqa: TID251  it is broken
        return super().init(mine)  # here


class NoOptimizer(Sound):
    """It makes an optimizer, and does not return it."""

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        made: list[optax.GradientTransformation] = [optax.sgd(learning_rate)]
        return made.clear()  # here


class MistypedOptimizer(Sound):
    """Optax has no such optimizer."""

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.adamww(learning_rate)  # here


class NoPosition(Sound):
    """Batches come alone."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[PyTree, int]]:
        for batch, _ in super().batches(shard, position):
            yield batch  # here


class NumpyPositions(Sound):
    """A plan of positions is an array."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[PyTree, int]]:
        for batch, after in super().batches(shard, position):
            yield batch, np.int64(after)  # type: ignore[misc]  # here


class HalfTokens(Sound):
    """A mean of masks is no count."""

    def tokens(self, batch: PyTree) -> int:
        return len(batch["y"]) + 0.5  # type: ignore[return-value]  # here
