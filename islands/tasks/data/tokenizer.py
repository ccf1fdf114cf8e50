"""Tokenizers: bytes as they are, or byte pairs learned from the text itself.

Byte-pair encoding starts from bytes, so every text can be encoded and none needs a download. All
hosts share the file of the pairs: its digest is one of the facts that they compare.

Each document is followed by a token which no text contains: the byte 0, or the end of byte pairs.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from islands.protocol.errors import DataError, not_installed
from islands.tasks.data.windows import Tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Trained

BYTES = "bytes"
END = 0
UNKNOWN = "\N{REPLACEMENT CHARACTER}"
END_TEXT = "<|end|>"
ENDS = (END_TEXT, "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]")
"""Names of the token that ends a document, as those use them who train tokenizers."""

VOCABULARY_LEAST = 257
"""Size of the smallest vocabulary of byte pairs: all bytes, and the end of a document."""

_TOGETHER = 256  # documents that are encoded at once, by as many threads as there are cores


class ByteTokenizer:
    """Every byte is a token."""

    name = BYTES
    vocabulary = 256

    def encode(self, documents: Iterable[bytes]) -> Iterator[Tokens]:
        """Yield the bytes of each document, with a NUL behind them."""
        for document in documents:
            yield np.frombuffer(document + bytes([END]), np.uint8)


class PairTokenizer:
    """Byte pairs, as learned by `train` or read by `load`."""

    def __init__(self, trained: "Trained") -> None:
        self._trained = trained
        ends = (trained.token_to_id(name) for name in ENDS)
        end: int | None = next((number for number in ends if number is not None), None)
        if end is None:
            raise DataError(
                f"the tokenizer has no token that ends a document: none of {', '.join(ENDS)}; add "
                "one to it as a special token, or learn pairs with `islands data tokenize`"
            )
        self.end = end
        self.text: str = trained.to_str()
        self.vocabulary: int = trained.get_vocab_size()

    @property
    def name(self) -> str:
        digest = hashlib.blake2b(self.text.encode(), digest_size=16).hexdigest()
        return f"byte pairs, {self.vocabulary} tokens, {digest}"

    def encode(self, documents: Iterable[bytes]) -> Iterator[Tokens]:
        each = iter(documents)
        while some := list(islice(each, _TOGETHER)):
            texts = [document.decode("utf-8", "replace") for document in some]
            for encoded in self._trained.encode_batch(texts, add_special_tokens=False):
                yield np.array([*encoded.ids, self.end], dtype_of(self.vocabulary))

    def spelled(self, pieces: Iterable[Sequence[int]]) -> Iterator[bytes]:
        """Yield the text of tokens as they come; a character that is not whole yet is held back."""
        tokens: list[int] = []
        done = 0
        for piece in pieces:
            tokens += piece
            whole: str = self._trained.decode(tokens).rstrip(UNKNOWN)
            yield whole[done:].encode()
            done = len(whole)
        yield self._trained.decode(tokens)[done:].encode()


Tokenizer = ByteTokenizer | PairTokenizer
"""Turns documents into tokens; its name, the kind and the digest, is shared by all hosts."""


def train(documents: Iterable[bytes], vocabulary: int) -> PairTokenizer:
    """Learn byte pairs from documents."""
    if vocabulary < VOCABULARY_LEAST:
        raise DataError(f"a vocabulary of {vocabulary} is too small; it has at least 257 tokens")
    package = _package()
    trained = package.Tokenizer(package.models.BPE())
    trained.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = package.decoders.ByteLevel()
    trainer = package.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_TEXT],
        initial_alphabet=sorted(package.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (document.decode("utf-8", "replace") for document in documents)
    trained.train_from_iterator(texts, trainer)
    trained.encode_special_tokens = True  # the end's own name in a text is only a text
    return PairTokenizer(trained)


def load(path: Path) -> PairTokenizer:
    """Read what `train` learned."""
    package = _package()
    try:
        text = path.read_text(encoding="utf-8")
        trained = package.Tokenizer.from_str(text)
    except OSError as error:
        raise DataError(f"the tokenizer {path} cannot be read: {error.strerror}") from error
    except Exception as error:  # `tokenizers` raises no narrower class
        raise DataError(f"{path} is no file of a tokenizer: {error}") from error
    trained.encode_special_tokens = True
    return PairTokenizer(trained)


def dtype_of(vocabulary: int) -> np.dtype[np.unsignedinteger]:
    """Return the smallest dtype that holds every token."""
    if vocabulary <= 1 << 8:
        return np.dtype(np.uint8)
    return np.dtype(np.uint16) if vocabulary <= 1 << 16 else np.dtype(np.uint32)


def _package() -> ModuleType:
    try:
        import tokenizers
    except ImportError as error:
        raise DataError(not_installed("a vocabulary of byte pairs", "tokenizers")) from error
    found: ModuleType = tokenizers
    return found
