"""The default task: a byte decoder learns Python's own standard-library source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from islands.data.corpus import standard_library
from islands.data.shards import ShardKey
from islands.data.windows import TokenBatch, TokenWindows
from islands.models.configurations import decoder_of
from islands.models.decoder import DecoderConfig
from islands.models.language import (
    BYTE_VALUES,
    bits_per_token,
    initial,
    sample,
    training_loss,
)
from islands.settings.groups import at_least
from islands.tasks.inner_optimizer import Inner, check_inner, inner_optimizer, is_hidden
from islands.training.task import Task, TaskState


@dataclass(frozen=True)
class StdlibBytes(Task[TokenBatch]):
    """Next-byte prediction on standard-library source.

    Attributes:
        decoder: Shape of the model, the name of one such as `150M`, or changes of a named one
            (`islands.models.configurations`). Its vocabulary is that of bytes.
        length: Bytes predicted per window.
        rows: Windows per batch; each host may choose its own.
        shard_count: Virtual shards of one pass.
        seed: Seed of the order of the data.
        validation_windows: Largest number of windows that an evaluation reads.
        inner: The inner optimizer: `adamw`, or `muon` for the matrices inside the layers and AdamW
            for the rest, both at the run's learning rate (`inner_optimizer`).
    """

    decoder: DecoderConfig | str | Mapping[str, object] = field(default_factory=DecoderConfig)
    length: int = 128
    rows: int = 4
    shard_count: int = 64
    seed: int = 0
    validation_windows: int = 256
    inner: Inner = "adamw"

    def __post_init__(self) -> None:
        """Look the decoder up, and refuse settings that cannot work.

        Raises:
            SettingsError: Name, value and what is allowed.
        """
        check_inner(self.inner)
        for name in ("length", "rows", "shard_count", "validation_windows"):
            at_least(name, getattr(self, name), 1)
        object.__setattr__(self, "decoder", decoder_of(self.decoder))

    @property
    def model(self) -> DecoderConfig:
        """Shape of the model: its vocabulary is that of bytes."""
        assert isinstance(self.decoder, DecoderConfig), "it was looked up"
        return replace(self.decoder, vocabulary=BYTE_VALUES)

    @property
    def shards(self) -> int:
        """Number of virtual shards in one pass over the data."""
        return self.shard_count

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return the decoder's initial parameters."""
        return TaskState(initial(self.model, key))

    def loss(
        self, params: PyTree, state: PyTree, batch: TokenBatch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Compute the cross-entropy in nats per byte, and a share of the balance loss if any."""
        tokens, weight = jnp.asarray(batch.tokens), jnp.asarray(batch.weight)
        return training_loss(self.model, params, tokens, weight), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return the inner optimizer that was chosen, after a clip by global norm."""
        return inner_optimizer(self.inner, learning_rate, stack=self.stack, hidden=self._hidden)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[TokenBatch, int]]:
        """Yield the batches of a shard; a position counts windows."""
        return _training(self).batches(shard, position)

    def tokens(self, batch: TokenBatch) -> int:
        """Return the number of bytes predicted."""
        return batch.predicted

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return the bits per byte on files that were never trained on."""
        return {"val_bits_per_byte": bits_per_token(self.model, params, _validation(self))}

    def stack(self, path: str) -> int:
        """Return how many layers are stacked in a parameter."""
        return self.model.stack(path)

    def labels(self) -> Mapping[str, str]:
        """Return the facts that all hosts must share besides the shapes."""
        shuffle = f"windows of {self.length}, {self.shard_count} shards, seed {self.seed}"
        labels = {
            "tokenizer": "bytes",
            "corpus": standard_library().digest,
            "data": shuffle,
            "decoder": self.model.label,
        }
        return labels if self.inner == "adamw" else {**labels, "inner": self.inner}

    def sample(
        self,
        params: PyTree,
        prompt: bytes,
        count: int,
        *,
        temperature: float = 0.8,
        seed: int = 0,
    ) -> Iterator[bytes]:
        """Yield the `count` bytes that the model adds to the prompt, in pieces."""
        return sample(
            self.model,
            params,
            prompt,
            count,
            context=self.length,
            temperature=temperature,
            seed=seed,
        )

    def _hidden(self, path: str) -> bool:
        return is_hidden(path, self.role(path))


@cache
def _training(task: StdlibBytes) -> TokenWindows:
    data = standard_library().train
    return TokenWindows(
        data, length=task.length, rows=task.rows, shards=task.shard_count, seed=task.seed
    )


@cache
def _validation(task: StdlibBytes) -> tuple[TokenBatch, ...]:
    data = standard_library().validation
    windows = TokenWindows(data, length=task.length, rows=32, shards=1, seed=task.seed)
    return tuple(windows.spread(task.validation_windows))
