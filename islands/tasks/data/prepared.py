"""A corpus of tokens on disk: two memory maps, what they were made of, and the tokenizer.

A prepared folder holds `train.tokens`, `validation.tokens`, `manifest.json`, and `tokenizer.json`
unless its tokens are bytes. `islands data tokenize` makes one, as does a task that is given text.

The digest of a document's text decides whether it is held out, so a document keeps its part
whatever is added, equal documents are in the same part, and none is ever in both. At least one
document is held out, and at least one is not.

The manifest names the files of the text with their sizes and digests. Hosts compare it when they
join (`manifest_lines`); that its own files are those of the manifest is checked where they are
opened (`Prepared.part`), so a hub needs the manifest alone.

A file of tokens that somebody else made is an array of NumPy, or plain numbers. The tokens of a
`.npy` file are a one-dimensional array of unsigned 8, 16 or 32 bits. Those of any other file,
mostly `.bin`, are plain numbers of the dtype that the user names. The file is mapped into memory.
Its last tokens are held out, since it does not say where documents begin.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec
import numpy as np
from blake3 import blake3

from islands.protocol.errors import DataError, unusable
from islands.tasks.data.text import SourceFile, Text, file_digest
from islands.tasks.data.tokenizer import PairTokenizer, Tokenizer, dtype_of
from islands.tasks.data.windows import Tokens

Part = Literal["train", "validation"]

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
LINES_MOST = 256
"""Most lines of a manifest that hosts compare; of more files, each line stands for several."""


class TokenFile(msgspec.Struct, frozen=True):
    """One memory map: its number of tokens, the bytes of text that they stand for, its digest."""

    tokens: int
    text_bytes: int
    digest: str


class Manifest(msgspec.Struct, frozen=True):
    """The content of a prepared folder, and its origin."""

    tokenizer: str
    vocabulary: int
    held_out: float
    documents: int
    held_out_documents: int
    files: tuple[SourceFile, ...]
    train: TokenFile
    validation: TokenFile


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared folder."""

    folder: Path
    manifest: Manifest

    def part(self, part: Part, verify: bool = True) -> Tokens:  # noqa: FBT001, FBT002
        """Map a part's tokens into memory.

        Args:
            part: Which of both files.
            verify: Whether the whole file is read once and compared with the manifest.

        Raises:
            DataError: The file is missing, or is not what the manifest says.
        """
        path, told = self.folder / f"{part}.tokens", getattr(self.manifest, part)
        dtype = dtype_of(self.manifest.vocabulary)
        try:
            whole = path.stat().st_size == told.tokens * dtype.itemsize
            if whole and verify:
                whole = file_digest(path) == told.digest
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        if not whole:
            raise DataError(f"{path} is not what {MANIFEST} beside it says; copy the folder again")
        return np.memmap(path, dtype, "r") if told.tokens else np.zeros(0, dtype)


@dataclass(frozen=True, slots=True)
class Split:
    """Which documents are held out, by a number below 2**64 that is drawn from their text.

    Attributes:
        threshold: Smaller numbers are held out.
        least: The smallest number of the corpus, which always is.
        most: The largest one, which never is.
        count: Number of documents.
    """

    threshold: int
    least: int
    most: int
    count: int

    def held_out(self, document: bytes) -> bool:
        """Whether a document is held out."""
        if not self.threshold:
            return False
        number = _number(document)
        return (number < self.threshold or number == self.least) and number != self.most


def split_of(documents: Iterable[bytes], share: float) -> Split:
    """Read all documents once, and decide which are held out.

    Raises:
        DataError: There is no document, or only one where one is to be held out.
    """
    least, most, count = 1 << 64, -1, 0
    for document in documents:
        number = _number(document)
        least, most, count = min(least, number), max(most, number), count + 1
    if least >= most and (share or not count):
        some = "all its documents are equal" if count > 1 else f"it has {count} of them"
        raise DataError(
            "a corpus needs two unlike documents, one to train on and one to hold out, and "
            f"{some}; add text, or set held_out to 0"
        )
    return Split(int(share * 2**64), least, most, count)


def prepare(text: Text, tokenizer: Tokenizer, share: float, folder: Path) -> Prepared:
    """Encode all documents into a new folder, which appears whole or not at all.

    Args:
        text: The text.
        tokenizer: Encodes it, and is kept beside the tokens.
        share: Share of the documents that is held out.
        folder: The folder to make; if another process has made it meanwhile, that one stays.

    Raises:
        UserError: The folder cannot be written.
    """
    split = split_of(text.documents(), share)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as place:
            fresh = Path(place) / folder.name
            fresh.mkdir()
            _fill(fresh, text, tokenizer, share, split)
            if not is_prepared(folder):
                _move(fresh, folder)
    except OSError as error:
        raise unusable(f"the folder {folder} cannot be written", error) from error
    return open_prepared(folder)


def open_prepared(folder: Path) -> Prepared:
    """Read the manifest of a prepared folder.

    Raises:
        DataError: There is no manifest, or it is damaged.
    """
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(f"{folder} holds no prepared corpus: {error}") from error
    return Prepared(folder, manifest)


def is_prepared(folder: Path) -> bool:
    """Whether a folder holds a manifest, which `prepare` writes last."""
    return (folder / MANIFEST).is_file()


def manifest_lines(files: Sequence[SourceFile]) -> dict[str, str]:
    """Return the manifest as at most `LINES_MOST` lines by name, in the order of the files.

    Two hosts whose files differ differ first in the line that names the file, or the range of files
    that it is one of.
    """
    together = -(-len(files) // LINES_MOST)
    lines: dict[str, str] = {}
    for number, start in enumerate(range(0, len(files), max(1, together))):
        some = files[start : start + together]
        lines[f"corpus {number:03}"] = str(some[0]) if len(some) == 1 else _range(some)
    return lines


def _range(files: Sequence[SourceFile]) -> str:
    digest = hashlib.blake2b("\n".join(map(str, files)).encode(), digest_size=16).hexdigest()
    size_bytes = sum(file.size_bytes for file in files)
    return f"{files[0].path} to {files[-1].path}, {len(files)} files, {size_bytes} {digest}"


def _fill(fresh: Path, text: Text, tokenizer: Tokenizer, share: float, split: Split) -> None:
    """Write all files of a prepared folder, the manifest last."""
    files = text.manifest()
    train, _ = _write(fresh, "train", tokenizer, text, lambda each: not split.held_out(each))
    validation, count = _write(fresh, "validation", tokenizer, text, split.held_out)
    if isinstance(tokenizer, PairTokenizer):
        (fresh / TOKENIZER).write_text(tokenizer.text, encoding="utf-8")
    told = (tokenizer.name, tokenizer.vocabulary, share, split.count, count, files)
    encoded = msgspec.json.encode(Manifest(*told, train, validation))
    (fresh / MANIFEST).write_bytes(msgspec.json.format(encoded, indent=1))


def _move(fresh: Path, folder: Path) -> None:
    try:
        fresh.replace(folder)
    except OSError:
        if not is_prepared(folder):  # else another process was faster, with the same files
            raise


def _write(
    folder: Path,
    part: Part,
    tokenizer: Tokenizer,
    text: Text,
    chosen: Callable[[bytes], bool],
) -> tuple[TokenFile, int]:
    """Write the tokens of the chosen documents; return what was written, and how many they are."""
    size_bytes = count = 0

    def documents() -> Iterator[bytes]:
        nonlocal size_bytes, count
        for document in filter(chosen, text.documents()):
            size_bytes, count = size_bytes + len(document), count + 1
            yield document

    hasher, tokens = blake3(), 0
    with (folder / f"{part}.tokens").open("wb") as file:
        for encoded in tokenizer.encode(documents()):
            data = encoded.tobytes()
            file.write(data)
            hasher.update(data)
            tokens += len(encoded)
    return TokenFile(tokens, size_bytes, hasher.hexdigest(length=16)), count


def _number(document: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(document, digest_size=8).digest())


# --- tokens that somebody else made ------------------------------------------------------------

DTYPES = ("uint8", "uint16", "uint32")
_CHUNK_TOKENS = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class TokenArray:
    """Both parts of a file of tokens, and the line of the manifest that stands for it."""

    train: Tokens
    validation: Tokens
    file: SourceFile


def open_tokens(path: Path, dtype: str, *, held_out: float, vocabulary: int) -> TokenArray:
    """Map a file of tokens into memory, and read it once to check it.

    Raises:
        DataError: The file is missing, of another form, or has tokens beyond the vocabulary.
    """
    try:
        tokens = _mapped(path, dtype)
        file = SourceFile(path.name, path.stat().st_size, file_digest(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{path} is no array of tokens: {error}") from error
    starts = range(0, len(tokens), _CHUNK_TOKENS)
    largest = max((int(tokens[at : at + _CHUNK_TOKENS].max()) for at in starts), default=0)
    if largest >= vocabulary:
        raise DataError(
            f"{path} has the token {largest}, and the vocabulary has {vocabulary}: set vocabulary "
            f"to at least {largest + 1}, or dtype to the file's own"
        )
    kept = len(tokens) - int(len(tokens) * held_out)
    return TokenArray(tokens[:kept], tokens[kept:], file)


def _mapped(path: Path, dtype: str) -> Tokens:
    """Map a file into memory.

    Raises:
        ValueError: It is no one-dimensional array of one of the dtypes.
    """
    if path.suffix == ".npy":
        found: Tokens = np.load(path, mmap_mode="r", allow_pickle=False)
        if found.ndim != 1 or found.dtype.name not in DTYPES:
            shown = f"{found.dtype}{list(found.shape)}"
            raise ValueError(f"it is {shown}, and not one row of {', '.join(DTYPES)}")
        return found
    return np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r")
