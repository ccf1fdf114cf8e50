"""The default task: a byte decoder learns Python's own standard-library source."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from jaxtyping import PyTree

from islands.tasks.data.corpus import standard_library
from islands.tasks.data.windows import TokenBatch, TokenWindows
from islands.tasks.decoder_task import DecoderTask
from islands.tasks.models.language import BYTE_VALUES, bits_per_token


@dataclass(frozen=True)
class StdlibBytes(DecoderTask):
    """Next-byte prediction on standard-library source; its settings are those of `DecoderTask`."""

    @property
    def tokens_known(self) -> int:
        return BYTE_VALUES

    def windows(self) -> TokenWindows:
        return _training(self)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        return {"val_bits_per_byte": bits_per_token(self.model, params, _validation(self))}

    def labels(self) -> Mapping[str, str]:
        corpus = {"tokenizer": "bytes", "corpus": standard_library().digest}
        return {**super().labels(), **corpus}


@cache
def _training(task: StdlibBytes) -> TokenWindows:
    return task.cut(standard_library().train)


@cache
def _validation(task: StdlibBytes) -> tuple[TokenBatch, ...]:
    return task.held_out_windows(standard_library().validation, task.length)
