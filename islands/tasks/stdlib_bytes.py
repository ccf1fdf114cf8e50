"""The default task: a byte decoder learns Python's own standard-library source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from jaxtyping import PyTree

from islands.tasks.data.corpus import standard_library
from islands.tasks.data.windows import TokenBatch, TokenWindows
from islands.tasks.decoder_task import DecoderTask
from islands.tasks.inner_optimizer import Inner
from islands.tasks.models.decoder_config import DecoderConfig, decoder_of
from islands.tasks.models.language import BYTE_VALUES, bits_per_token, sample


@dataclass(frozen=True)
class StdlibBytes(DecoderTask):
    """Next-byte prediction on standard-library source.

    Attributes:
        decoder: Shape of the model, the name of one such as `150M`, or changes of a named one
            (`islands.tasks.models.decoder_config`). Its vocabulary is that of bytes.
        length: Bytes predicted per window.
        rows: Windows per batch; each host may choose its own.
        shard_count: Virtual shards of one pass.
        seed: Seed of the order of the data.
        validation_windows: Largest number of windows that an evaluation reads.
        inner: The inner optimizer: `adamw`, or `muon` for the matrices inside the layers and AdamW
            for the rest, both at the run's learning rate (`inner_optimizer`).
        unlike: Whether a shard is one stretch of the corpus, whole modules one after another,
            rather than a sample of all of it.
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
        """Look the decoder up, and refuse settings that cannot work.

        Raises:
            SettingsError: Name, value and what is allowed.
        """
        self.check()
        object.__setattr__(self, "decoder", decoder_of(self.decoder))

    @property
    def model(self) -> DecoderConfig:
        assert isinstance(self.decoder, DecoderConfig), "it was looked up"
        return replace(self.decoder, vocabulary=BYTE_VALUES)

    def windows(self) -> TokenWindows:
        return _training(self)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return the bits per byte on files that were never trained on."""
        return {"val_bits_per_byte": bits_per_token(self.model, params, _validation(self))}

    def labels(self) -> Mapping[str, str]:
        """Return the facts that all hosts must share besides the shapes."""
        labels = {
            "tokenizer": "bytes",
            "corpus": standard_library().digest,
            "data": self.order,
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


@cache
def _training(task: StdlibBytes) -> TokenWindows:
    return task.cut(standard_library().train)


@cache
def _validation(task: StdlibBytes) -> tuple[TokenBatch, ...]:
    data = standard_library().validation
    windows = TokenWindows(data, length=task.length, rows=32, shards=1, seed=task.seed)
    return tuple(windows.spread(task.validation_windows))
