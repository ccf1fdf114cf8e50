"""A decoder learns a text of your own: files, lines of JSON, or tokens in a memory map."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from islands.data.documents import SourceFile, exists, find_text
from islands.data.prepared import (
    Prepared,
    is_prepared,
    manifest_lines,
    open_prepared,
    prepare,
)
from islands.data.shards import ShardKey
from islands.data.token_file import DTYPES, TokenArray, open_tokens
from islands.data.tokenizer import BYTES, ByteTokenizer, Tokenizer, load
from islands.data.windows import TokenBatch, Tokens, TokenWindows
from islands.errors import DataError, SettingsError
from islands.models.decoder import DecoderConfig
from islands.models.language import bits_per_token, initial, nats
from islands.training.factory import data_folders
from islands.training.task import Task, TaskState

TOKEN_FILES = (".npy", ".bin")


@dataclass(frozen=True)
class TextFiles(Task[TokenBatch]):
    """Next-token prediction on text.

    Attributes:
        path: A folder of text, a pattern such as `docs/**/*.md`, or one file: text, lines of JSON
            (`.jsonl`), or tokens (`.npy`, `.bin`). Or a folder that `islands tokenize` made. A
            relative one is looked for beside the run's file first.
        tokenizer: `bytes`, or the file of a tokenizer that `islands tokenize` made; a folder that
            it made has its own.
        json_field: Field of a line of JSON that holds the text.
        dtype: Type of the numbers of a `.bin` file.
        vocabulary: Number of different tokens of a `.npy` or `.bin` file.
        held_out: Share of the documents that is never trained on, and evaluated.
        length: Tokens predicted per window.
        rows: Windows per batch; each host may choose its own.
        shard_count: Virtual shards of one pass.
        seed: Seed of the order of the data.
        width: Width of the model.
        layers: Number of its layers.
        heads: Number of its heads; they divide the width.
        hidden: Width inside its feed-forward.
        validation_windows: Largest number of windows that an evaluation reads.
        verify: Whether the tokens are read once at the start and compared with their manifest.
        cache: Folder in which text is kept as tokens; by default, one of this user's.
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
    width: int = 128
    layers: int = 3
    heads: int = 4
    hidden: int = 384
    validation_windows: int = 256
    verify: bool = True
    cache: str = ""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            SettingsError: Name, value and what is allowed.
        """
        for name in ("length", "rows", "shard_count", "width", "layers", "heads", "hidden"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.held_out < 1:
            raise SettingsError(f"held_out is {self.held_out}; it is a share, from 0 to below 1")
        if self.dtype not in DTYPES:
            raise SettingsError(f"dtype is {self.dtype!r}; it must be one of {', '.join(DTYPES)}")
        if self.width % self.heads:
            raise SettingsError(f"heads is {self.heads}; it must divide width {self.width}")

    @property
    def shards(self) -> int:
        """Number of virtual shards in one pass over the data."""
        return self.shard_count

    @property
    def decoder(self) -> DecoderConfig:
        """Shape of the model: its vocabulary is that of the tokens."""
        return DecoderConfig(
            vocabulary=_corpus(self).vocabulary,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            head_width=self.width // self.heads,
            hidden=self.hidden,
        )

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return the decoder's initial parameters."""
        return TaskState(initial(self.decoder, key))

    def loss(
        self, params: PyTree, state: PyTree, batch: TokenBatch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Compute the cross-entropy in nats per token."""
        tokens, weight = jnp.asarray(batch.tokens), jnp.asarray(batch.weight)
        return nats(self.decoder, params, tokens, weight), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return AdamW after a clip by global norm."""
        adamw = optax.adamw(learning_rate, b1=0.9, b2=0.99, weight_decay=0.1)
        return optax.chain(optax.clip_by_global_norm(1.0), adamw)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[TokenBatch, int]]:
        """Yield the batches of a shard; a position counts windows."""
        return _training(self).batches(shard, position)

    def tokens(self, batch: TokenBatch) -> int:
        """Return the number of tokens predicted."""
        return batch.predicted

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return the bits per byte of text that was never trained on, or else per token."""
        if not _corpus(self).held_out:
            return {}
        bits = bits_per_token(self.decoder, params, _validation(self))
        bytes_per_token = _corpus(self).bytes_per_token
        if bytes_per_token is None:
            return {"val_bits_per_token": bits}
        return {"val_bits_per_byte": bits / bytes_per_token}

    def labels(self) -> Mapping[str, str]:
        """Return the facts that all hosts must share: the files and the order of their windows."""
        corpus = _corpus(self)
        order = f"windows of {self.length}, {self.shard_count} shards, seed {self.seed}"
        return {
            **manifest_lines(corpus.files),
            "data": f"{order}, {corpus.held_out:g} held out",
            "decoder": str(self.decoder),
            "tokenizer": corpus.tokenizer,
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Corpus:
    """What a task knows of its corpus, and where its tokens are."""

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
    text = find_text(path, task.json_field)
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
    return TokenWindows(
        data, length=task.length, rows=task.rows, shards=task.shard_count, seed=task.seed
    )


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
