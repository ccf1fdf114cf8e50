"""A decoder learns a text of your own: files, lines of JSON, or tokens in a memory map."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import PyTree

from islands.protocol.errors import DataError, SettingsError
from islands.tasks.data import prepared
from islands.tasks.data.text import SourceFile, exists, text_at
from islands.tasks.data.tokenizer import BYTES, ByteTokenizer, Tokenizer, load
from islands.tasks.data.windows import TokenBatch, Tokens, TokenWindows
from islands.tasks.decoder_task import DecoderTask
from islands.tasks.factory import data_folders
from islands.tasks.models.language import bits_per_token, sample_tokens

TOKEN_FILES = (".npy", ".bin")


@dataclass(frozen=True)
class TextFiles(DecoderTask):
    """Next-token prediction on text.

    Attributes:
        path: A folder of text, a pattern such as `docs/**/*.md`, or one file: text, lines of JSON
            (`.jsonl`), or tokens (`.npy`, `.bin`). Or a folder that `islands data tokenize` made,
            or one that `save_to_disk` of Hugging Face's `datasets` made. A relative one is looked
            for beside the run's file first.
        tokenizer: `bytes`, or the file of a tokenizer that `islands data tokenize` made; a folder
            that it made has its own.
        json_field: Field of a line of JSON, or column of a dataset, that holds the text.
        dtype: Type of the numbers of a `.bin` file.
        vocabulary: Number of different tokens of a `.npy` or `.bin` file.
        held_out: Share of the documents that is never trained on, and evaluated.
        verify: Whether the tokens are read once at the start and compared with their manifest.
        cache: Folder in which text is kept as tokens; by default, one of this user's.
    """

    path: str = ""
    tokenizer: str = BYTES
    json_field: str = "text"
    dtype: str = "uint16"
    vocabulary: int = 1 << 16
    held_out: float = 0.05
    verify: bool = True
    cache: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path:
            raise SettingsError("path is empty; it must be a folder, a pattern or a file of text")
        if not 0 <= self.held_out < 1:
            raise SettingsError(f"held_out is {self.held_out}; it is a share, from 0 to below 1")
        if self.dtype not in prepared.DTYPES:
            raise SettingsError(
                f"dtype is {self.dtype!r}; it must be one of {', '.join(prepared.DTYPES)}"
            )

    @property
    def tokens_known(self) -> int:
        return _corpus(self).vocabulary

    def windows(self) -> TokenWindows:
        return _training(self)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
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
        corpus = _corpus(self)
        if corpus.folder is None:
            raise SettingsError(
                f"{self.path} holds tokens without their tokenizer, so no text can be continued; "
                "name the text itself, or a folder that islands data tokenize made"
            )
        if corpus.tokenizer == BYTES:
            return super().sample(params, prompt, count, temperature=temperature, seed=seed)
        pairs = load(corpus.folder / prepared.TOKENIZER)
        given = next(pairs.encode([prompt]))[:-1].astype(np.int32)
        added = sample_tokens(
            self.model,
            params,
            given,
            count,
            context=self.length,
            temperature=temperature,
            seed=seed,
        )
        return pairs.spelled(piece.tolist() for piece in added)

    def labels(self) -> Mapping[str, str]:
        corpus, labels = _corpus(self), dict(super().labels())
        labels["data"] += f", {corpus.held_out:g} held out"
        return {**labels, **prepared.manifest_lines(corpus.files), "tokenizer": corpus.tokenizer}


class _Corpus(NamedTuple):
    """A corpus as its task knows it; tokens of others have no folder with their tokenizer."""

    files: tuple[SourceFile, ...]
    tokenizer: str
    vocabulary: int
    held_out: float
    bytes_per_token: float | None
    folder: Path | None
    part: Callable[[prepared.Part, bool], Tokens]


def _corpus(task: TextFiles) -> _Corpus:
    """Find the corpus of a task, whatever its model and its batches are."""
    names = ("path", "tokenizer", "json_field", "dtype", "vocabulary", "held_out", "cache")
    return _found(TextFiles(**{name: getattr(task, name) for name in names}))


@cache
def _found(task: TextFiles) -> _Corpus:
    path = _absolute(task.path)
    if path.suffix in TOKEN_FILES:
        found = prepared.open_tokens(
            path, task.dtype, held_out=task.held_out, vocabulary=task.vocabulary
        )
        name = f"{found.train.dtype}, {task.vocabulary} tokens"
        facts = ((found.file,), name, task.vocabulary, task.held_out, None, None)
        return _Corpus(*facts, lambda part, _: getattr(found, part))
    corpus = prepared.open_prepared(path) if prepared.is_prepared(path) else _of_text(task, path)
    manifest = corpus.manifest
    some = manifest.validation if manifest.validation.tokens else manifest.train
    return _Corpus(
        manifest.files,
        manifest.tokenizer,
        manifest.vocabulary,
        manifest.held_out,
        some.text_bytes / max(1, some.tokens),
        corpus.folder,
        corpus.part,
    )


def _absolute(name: str) -> Path:
    """Find a path beside the run's file, or else where this process was started."""
    path = Path(name).expanduser()
    there = next((each / path for each in data_folders() if exists(each / path)), path)
    return Path(os.path.normpath(there))


def _of_text(task: TextFiles, path: Path) -> prepared.Prepared:
    """Find the text's tokens in the cache, or put them there."""
    text = text_at(path, task.json_field)
    tokenizer: Tokenizer
    tokenizer = ByteTokenizer() if task.tokenizer == BYTES else load(_absolute(task.tokenizer))
    facts = [*map(str, text.manifest()), text.field, tokenizer.name, f"{task.held_out}"]
    name = hashlib.blake2b("\n".join(facts).encode(), digest_size=16).hexdigest()
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "islands", "text")
    folder = Path(task.cache or usual).expanduser() / name
    if prepared.is_prepared(folder):
        return prepared.open_prepared(folder)
    return prepared.prepare(text, tokenizer, task.held_out, folder)


@cache
def _training(task: TextFiles) -> TokenWindows:
    data = _corpus(task).part("train", task.verify)
    if len(data) <= task.length:
        raise DataError(
            f"{task.path} has {len(data)} tokens to train on, too few for a window of "
            f"{task.length}; add text, or set length lower"
        )
    return task.cut(data)


@cache
def _validation(task: TextFiles) -> tuple[TokenBatch, ...]:
    data = _corpus(task).part("validation", task.verify)
    length = min(task.length, len(data) - 1)
    if length < 1:
        raise DataError(
            f"{task.path} has {len(data)} tokens that are held out, too few to evaluate; add text, "
            "or set held_out higher, or to 0"
        )
    return task.held_out_windows(data, length)
