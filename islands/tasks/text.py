"""A decoder learns a text of your own: files, lines of JSON, or tokens in a memory map."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from jaxtyping import PyTree

from islands.protocol.errors import DataError, SettingsError
from islands.tasks.data.prepared import (
    DTYPES,
    TOKENIZER,
    Prepared,
    TokenArray,
    is_prepared,
    manifest_lines,
    open_prepared,
    open_tokens,
    prepare,
)
from islands.tasks.data.text import SourceFile, exists, text_at
from islands.tasks.data.tokenizer import BYTES, ByteTokenizer, Tokenizer, load
from islands.tasks.data.windows import TokenBatch, Tokens, TokenWindows
from islands.tasks.decoder_task import DecoderTask
from islands.tasks.factory import data_folders
from islands.tasks.inner_optimizer import Inner
from islands.tasks.models.decoder_config import DecoderConfig, decoder_of
from islands.tasks.models.language import bits_per_token, sample_tokens

TOKEN_FILES = (".npy", ".bin")


@dataclass(frozen=True)
class TextFiles(DecoderTask):
    """Next-token prediction on text.

    Attributes:
        path: A folder of text, a pattern such as `docs/**/*.md`, or one file: text, lines of JSON
            (`.jsonl`), or tokens (`.npy`, `.bin`). Or a folder that `islands tokenize` made, or one
            that `save_to_disk` of Hugging Face's `datasets` made. A relative one is looked for
            beside the run's file first.
        tokenizer: `bytes`, or the file of a tokenizer that `islands tokenize` made; a folder that
            it made has its own.
        json_field: Field of a line of JSON, or column of a dataset, that holds the text.
        dtype: Type of the numbers of a `.bin` file.
        vocabulary: Number of different tokens of a `.npy` or `.bin` file.
        held_out: Share of the documents that is never trained on, and evaluated.
        length: Tokens predicted per window.
        rows: Windows per batch; each host may choose its own.
        shard_count: Virtual shards of one pass.
        seed: Seed of the order of the data.
        decoder: Shape of the model: the name of a configuration, or settings that differ from the
            default's. Its vocabulary is that of the tokens.
        inner: The inner optimizer: `adamw`, or `muon` for the matrices inside the layers.
        validation_windows: Largest number of windows that an evaluation reads.
        verify: Whether the tokens are read once at the start and compared with their manifest.
        cache: Folder in which text is kept as tokens; by default, one of this user's.
        unlike: Whether a shard is one stretch of the text, in the order of its files, rather than
            a sample of all of it.
    """

    path: str
    tokenizer: str = BYTES
    json_field: str = "text"
    dtype: str = "uint16"
    vocabulary: int = 1 << 16
    held_out: float = 0.05
    length: int = 128
    rows: int = 4
    shard_count: int = 64
    seed: int = 0
    decoder: DecoderConfig | str | Mapping[str, object] = field(default_factory=DecoderConfig)
    inner: Inner = "adamw"
    validation_windows: int = 256
    verify: bool = True
    cache: str = ""
    unlike: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            SettingsError: Name, value and what is allowed.
        """
        object.__setattr__(self, "decoder", decoder_of(self.decoder))
        if not self.path:
            raise SettingsError("path is empty; it must be a folder, a pattern or a file of text")
        self.check()
        if not 0 <= self.held_out < 1:
            raise SettingsError(f"held_out is {self.held_out}; it is a share, from 0 to below 1")
        if self.dtype not in DTYPES:
            raise SettingsError(f"dtype is {self.dtype!r}; it must be one of {', '.join(DTYPES)}")

    @property
    def model(self) -> DecoderConfig:
        assert isinstance(self.decoder, DecoderConfig), "it was looked up"
        return replace(self.decoder, vocabulary=_corpus(self).vocabulary)

    def windows(self) -> TokenWindows:
        return _training(self)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return the bits per byte of text that was never trained on, or else per token."""
        if not _corpus(self).held_out:
            return {}
        bits = bits_per_token(self.model, params, _validation(self))
        bytes_per_token = _corpus(self).bytes_per_token
        if bytes_per_token is None:
            return {"val_bits_per_token": bits}
        return {"val_bits_per_byte": bits / bytes_per_token}

    def sample(
        self,
        params: PyTree,
        prompt: bytes,
        count: int,
        *,
        temperature: float = 0.8,
        seed: int = 0,
    ) -> Iterator[bytes]:
        """Yield the text of the `count` tokens that the model adds to the prompt, in pieces.

        Raises:
            SettingsError: The task was given tokens, and nobody says what text they stand for.
        """
        corpus = _corpus(self)
        if not isinstance(corpus.source, Prepared):
            raise SettingsError(
                f"{self.path} holds tokens without their tokenizer, so no text can be continued; "
                "name the text itself, or a folder that islands tokenize made"
            )
        sampled = partial(
            sample_tokens, self.model, params, context=self.length, temperature=temperature
        )
        if corpus.tokenizer == BYTES:
            given = np.frombuffer(prompt, np.uint8).astype(np.int32)
            return (piece.astype(np.uint8).tobytes() for piece in sampled(given, count, seed=seed))
        pairs = load(corpus.source.folder / TOKENIZER)
        given = next(pairs.encode([prompt]))[:-1].astype(np.int32)
        return pairs.spelled(piece.tolist() for piece in sampled(given, count, seed=seed))

    def labels(self) -> Mapping[str, str]:
        """Return the facts that all hosts must share: the files and the order of their windows."""
        corpus = _corpus(self)
        return {
            **manifest_lines(corpus.files),
            "data": f"{self.order}, {corpus.held_out:g} held out",
            "decoder": self.model.label,
            "tokenizer": corpus.tokenizer,
            **({} if self.inner == "adamw" else {"inner": self.inner}),
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Corpus:
    """A corpus as its task knows it, and the place of its tokens."""

    files: tuple[SourceFile, ...]
    tokenizer: str
    vocabulary: int
    held_out: float
    bytes_per_token: float | None
    source: Prepared | TokenArray

    def part(self, *, validation: bool, verify: bool) -> Tokens:
        """Map a part of the tokens into memory."""
        if isinstance(self.source, Prepared):
            return self.source.part("validation" if validation else "train", verify=verify)
        return self.source.validation if validation else self.source.train


def _corpus(task: TextFiles) -> _Corpus:
    """Find the corpus of a task, whatever its model and its batches are."""
    plain = TextFiles(task.path)
    names = ("tokenizer", "json_field", "dtype", "vocabulary", "held_out", "cache")
    return _found(replace(plain, **{name: getattr(task, name) for name in names}))


@cache
def _found(task: TextFiles) -> _Corpus:
    path = _place(task.path)
    if path.suffix in TOKEN_FILES:
        return _of_array(task, path)
    prepared = open_prepared(path) if is_prepared(path) else _of_text(task, path)
    told = prepared.manifest
    some = told.validation if told.validation.tokens else told.train
    return _Corpus(
        told.files,
        told.tokenizer,
        told.vocabulary,
        told.held_out,
        some.text_bytes / max(1, some.tokens),
        prepared,
    )


def _place(told: str) -> Path:
    """Find a path beside the run's file, or else where this process was started."""
    path = Path(told).expanduser()
    there = next((each / path for each in data_folders() if exists(each / path)), path)
    return Path(os.path.normpath(there))


def _of_array(task: TextFiles, path: Path) -> _Corpus:
    found = open_tokens(path, task.dtype, held_out=task.held_out, vocabulary=task.vocabulary)
    told = f"{found.train.dtype}, {task.vocabulary} tokens"
    return _Corpus((found.file,), told, task.vocabulary, task.held_out, None, found)


def _of_text(task: TextFiles, path: Path) -> Prepared:
    """Find the text's tokens in the cache, or put them there."""
    text = text_at(path, task.json_field)
    tokenizer: Tokenizer
    tokenizer = ByteTokenizer() if task.tokenizer == BYTES else load(_place(task.tokenizer))
    facts = [*map(str, text.manifest()), text.field, tokenizer.name, f"{task.held_out}"]
    name = hashlib.blake2b("\n".join(facts).encode(), digest_size=16).hexdigest()
    folder = _cache_folder(task) / name
    if is_prepared(folder):
        return open_prepared(folder)
    return prepare(text, tokenizer, task.held_out, folder)


def _cache_folder(task: TextFiles) -> Path:
    if task.cache:
        return Path(task.cache).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "islands" / "text"


@cache
def _training(task: TextFiles) -> TokenWindows:
    data = _corpus(task).part(validation=False, verify=task.verify)
    if len(data) <= task.length:
        raise DataError(
            f"{task.path} has {len(data)} tokens to train on, too few for a window of "
            f"{task.length}; add text, or set length lower"
        )
    return task.cut(data)


@cache
def _validation(task: TextFiles) -> tuple[TokenBatch, ...]:
    data = _corpus(task).part(validation=True, verify=task.verify)
    length = min(task.length, len(data) - 1)
    if length < 1:
        raise DataError(
            f"{task.path} has {len(data)} tokens that are held out, too few to evaluate; add text, "
            "or set held_out higher, or to 0"
        )
    windows = TokenWindows(data, length=length, rows=32, seed=task.seed)
    return tuple(windows.spread(task.validation_windows))
