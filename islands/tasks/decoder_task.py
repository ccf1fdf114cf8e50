"""The common part of tasks of decoders: loss, inner optimizer, and order of windows."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from islands.layout.leaves import Role
from islands.settings.groups import at_least
from islands.tasks.data.shards import ShardKey
from islands.tasks.data.windows import TokenBatch, Tokens, TokenWindows
from islands.tasks.inner_optimizer import Inner, check_inner, inner_optimizer
from islands.tasks.models.decoder_config import DecoderConfig, decoder_of
from islands.tasks.models.language import initial, nats, sample
from islands.tasks.task import Task, TaskState


@dataclass(frozen=True)
class DecoderTask(Task[TokenBatch]):
    """Next-token prediction by a decoder; a task of this kind says what data it has.

    Attributes:
        decoder: Shape of the model, the name of one such as `150M`, or changes of a named one
            (`islands.tasks.models.decoder_config`). Its vocabulary is that of the data.
        length: Tokens predicted per window.
        rows: Windows per batch; each host may choose its own.
        shard_count: Virtual shards of one pass.
        seed: Seed of the order of the data.
        validation_windows: Largest number of windows that an evaluation reads.
        inner: The inner optimizer: `adamw`, or `muon` for the matrices inside the layers and AdamW
            for the rest, both at the run's learning rate (`inner_optimizer`).
        unlike: Whether a shard is one stretch of the data, in its own order, rather than a sample
            of all of it, so that learners have unlike data.
    """

    decoder: DecoderConfig | str | Mapping[str, object] = field(default_factory=DecoderConfig)
    length: int = 128
    rows: int = 4
    shard_count: int = 64
    seed: int = 0
    validation_windows: int = 256
    inner: Inner = "adamw"
    unlike: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", decoder_of(self.decoder))
        check_inner(self.inner)
        for name in ("length", "rows", "shard_count", "validation_windows"):
            at_least(name, getattr(self, name), 1)

    @property
    @abstractmethod
    def tokens_known(self) -> int:
        """Number of different tokens of the data."""

    @property
    def model(self) -> DecoderConfig:
        assert isinstance(self.decoder, DecoderConfig), "it was looked up"
        return replace(self.decoder, vocabulary=self.tokens_known)

    @abstractmethod
    def windows(self) -> TokenWindows:
        """Return the windows that are trained on."""

    def cut(self, data: Tokens) -> TokenWindows:
        return TokenWindows(
            data,
            length=self.length,
            rows=self.rows,
            shards=self.shard_count,
            seed=self.seed,
            unlike=self.unlike,
        )

    def held_out_windows(self, data: Tokens, length: int) -> tuple[TokenBatch, ...]:
        windows = TokenWindows(data, length=length, rows=32, seed=self.seed)
        return tuple(windows.spread(self.validation_windows))

    @property
    def shards(self) -> int:
        return self.shard_count

    def labels(self) -> Mapping[str, str]:
        shards = "unlike shards" if self.unlike else "shards"
        order = f"windows of {self.length}, {self.shard_count} {shards}, seed {self.seed}"
        inner = {} if self.inner == "adamw" else {"inner": self.inner}
        return {"data": order, "decoder": self.model.label, **inner}

    def init(self, key: PRNGKeyArray) -> TaskState:
        return TaskState(initial(self.model, key))

    def loss(
        self, params: PyTree, state: PyTree, batch: TokenBatch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        tokens, weight = jnp.asarray(batch.tokens), jnp.asarray(batch.weight)
        return nats(self.model, params, tokens, weight), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return inner_optimizer(self.inner, learning_rate, stack=self.stack, hidden=self._hidden)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[TokenBatch, int]]:
        return self.windows().batches(shard, position)

    def tokens(self, batch: TokenBatch) -> int:
        return batch.predicted

    def stack(self, path: str) -> int:
        return self.model.stack(path)

    def sample(
        self,
        params: PyTree,
        prompt: bytes,
        count: int,
        *,
        temperature: float = 0.8,
        seed: int = 0,
    ) -> Iterator[bytes]:
        context = self.length
        return sample(
            self.model, params, prompt, count, context=context, temperature=temperature, seed=seed
        )

    def _hidden(self, path: str) -> bool:
        return self.role(path) is Role.MATRIX
