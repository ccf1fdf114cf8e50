"""The common part of tasks of decoders: loss, inner optimizer, and order of windows."""

from abc import abstractmethod
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from islands.layout.leaves import Role
from islands.settings.groups import at_least
from islands.tasks.data.shards import ShardKey
from islands.tasks.data.windows import TokenBatch, Tokens, TokenWindows
from islands.tasks.inner_optimizer import Inner, check_inner, inner_optimizer
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.models.language import initial, nats
from islands.tasks.task import Task, TaskState


class DecoderTask(Task[TokenBatch]):
    """Next-token prediction by a decoder; a task of this kind has its data, and says its shape.

    Attributes:
        length: Tokens predicted per window.
        rows: Windows per batch; each host may choose its own.
        shard_count: Virtual shards of one pass.
        seed: Seed of the order of the data.
        unlike: Whether a shard is one stretch of the data, rather than a sample of all of it, so
            that learners have unlike data.
        validation_windows: Largest number of windows that an evaluation reads.
        inner: The inner optimizer: `adamw`, or `muon` for the matrices inside the layers and AdamW
            for the rest, both at the run's learning rate (`inner_optimizer`).
    """

    length: int
    rows: int
    shard_count: int
    seed: int
    unlike: bool
    validation_windows: int
    inner: Inner

    @property
    @abstractmethod
    def model(self) -> DecoderConfig:
        """Shape of the model; its vocabulary is that of the data."""

    @abstractmethod
    def windows(self) -> TokenWindows:
        """Return the windows that are trained on."""

    def cut(self, data: Tokens) -> TokenWindows:
        """Cut tokens into the windows and shards of this task."""
        return TokenWindows(
            data,
            length=self.length,
            rows=self.rows,
            shards=self.shard_count,
            seed=self.seed,
            unlike=self.unlike,
        )

    def check(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            SettingsError: Name, value and what is allowed.
        """
        check_inner(self.inner)
        for name in ("length", "rows", "shard_count", "validation_windows"):
            at_least(name, getattr(self, name), 1)

    @property
    def shards(self) -> int:
        return self.shard_count

    @property
    def order(self) -> str:
        """The order of the data, in words, as hosts compare it."""
        shards = "unlike shards" if self.unlike else "shards"
        return f"windows of {self.length}, {self.shard_count} {shards}, seed {self.seed}"

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return the decoder's initial parameters."""
        return TaskState(initial(self.model, key))

    def loss(
        self, params: PyTree, state: PyTree, batch: TokenBatch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Compute the cross-entropy in nats per token."""
        tokens, weight = jnp.asarray(batch.tokens), jnp.asarray(batch.weight)
        return nats(self.model, params, tokens, weight), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return the inner optimizer that was chosen, after a clip by global norm."""
        return inner_optimizer(self.inner, learning_rate, stack=self.stack, hidden=self._hidden)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[TokenBatch, int]]:
        return self.windows().batches(shard, position)

    def tokens(self, batch: TokenBatch) -> int:
        """Return the number of tokens predicted."""
        return batch.predicted

    def stack(self, path: str) -> int:
        """Return how many layers are stacked in a parameter."""
        return self.model.stack(path)

    def _hidden(self, path: str) -> bool:
        return self.role(path) is Role.MATRIX
