"""Text at a path, whatever keeps it: files, lines of JSON, or a dataset of Hugging Face's on disk.

A long text file is cut into passages of about `PASSAGE_BYTES`, at the ends of lines, so that it has
a part that can be held out. Files are in the order of their paths below the folder. Left out are
hidden files, files that begin like binary ones (a NUL byte in their first kilobytes, as git
decides), and all that is in the folder of a run, which the run that reads the text may be writing.

The files of a dataset are the Arrow files that hold its rows, each with the column that is read.
"""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from islands.files.run_files import HUB_LOCK, SPEC_FILE
from islands.protocol.errors import DataError, not_installed

if TYPE_CHECKING:
    from datasets import Dataset

PASSAGE_BYTES = 1 << 16
JSON_LINES = ".jsonl"
RUN_MARKS = (SPEC_FILE, HUB_LOCK)
"""Each of these files makes a folder below the corpus's one that of a run."""

_LOOKED_AT_BYTES = 8192


class SourceFile(msgspec.Struct, frozen=True):
    """One file of a corpus: its path below the corpus's folder, its size, and its digest."""

    path: str
    size_bytes: int
    digest: str

    def __str__(self) -> str:
        return f"{self.path} {self.size_bytes} {self.digest}"


def source_file(name: str, path: Path) -> SourceFile:
    return SourceFile(name, path.stat().st_size, file_digest(path))


@dataclass(frozen=True, slots=True)
class TextFolder:
    """The files of a corpus of text, by their sorted paths below a folder.

    Of a line of JSON, one field holds the text.
    """

    root: Path
    names: tuple[str, ...]
    field: str = "text"

    def manifest(self) -> tuple[SourceFile, ...]:
        return tuple(source_file(_shown(name), self.root / name) for name in self.names)

    def documents(self) -> Iterator[bytes]:
        """Yield the text of every document as UTF-8, in order; none is empty."""
        for name in self.names:
            path = self.root / name
            with path.open("rb") as file:
                if path.suffix == JSON_LINES:
                    for number, line in enumerate(file, 1):
                        yield from _text_of(line, self.field, f"{path}:{number}")
                else:
                    while passage := file.read(PASSAGE_BYTES):
                        yield passage + file.readline(PASSAGE_BYTES)


def find_text(path: Path, field: str = "text") -> TextFolder:
    """Find the text files at a path: a folder, a file, or a pattern such as `docs/**/*.md`."""
    root, found = path, list(path.rglob("*")) if path.is_dir() else []
    if not found:
        parts, found = path.parts, _matches(path)
        plain = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
        root = Path(*parts[:plain])
    below = [each.relative_to(root) for each in found]
    folders = {folder for name in below for folder in name.parents} - {Path()}
    runs = {each for each in folders if any((root / each / mark).is_file() for mark in RUN_MARKS)}
    names = sorted(
        name.as_posix() for name in below if runs.isdisjoint(name.parents) and _is_text(root, name)
    )
    if not names:
        raise DataError(f"there is no text at {path}: name a folder, a file or a pattern of files")
    return TextFolder(root, tuple(names), field)


def exists(path: Path) -> bool:
    """Whether a path, or a pattern, leads to any file or folder."""
    return path.exists() or bool(_matches(path))


def file_digest(path: Path) -> str:
    """Compute the blake3-128 of a file, in hexadecimal, without copying it into memory."""
    hasher = blake3(max_threads=blake3.AUTO)
    return hasher.update_mmap(path).hexdigest(length=16)


def _matches(pattern: Path) -> list[Path]:
    return [Path(each) for each in glob.glob(str(pattern), recursive=True)]  # noqa: PTH207  (the pattern may be absolute)


def _shown(name: str) -> str:
    """Return a name that hosts can compare as text, though its bytes may be no UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def _is_text(root: Path, name: Path) -> bool:
    if any(part.startswith(".") for part in name.parts) or not (root / name).is_file():
        return False
    with (root / name).open("rb") as file:
        return b"\0" not in file.read(_LOOKED_AT_BYTES)


def _text_of(line: bytes, field: str, where: str) -> Iterator[bytes]:
    """Yield the text of a line of JSON, unless the line is blank or the text is empty."""
    if not line.strip():
        return
    try:
        found = msgspec.json.decode(line, type=dict[str, object]).get(field)
    except msgspec.MsgspecError as error:
        raise DataError(f"{where} is no JSON object on one line: {error}") from error
    if not isinstance(found, str):
        raise DataError(
            f"{where} has no text in {field!r}; name the field that has it as `json_field`"
        )
    if found:
        yield found.encode("utf-8", "surrogatepass")


# --- datasets of Hugging Face ------------------------------------------------------------------

_TEXT_TYPES = ("string", "large_string")
_ROWS_TOGETHER = 64


@dataclass(frozen=True, slots=True)
class SavedDataset:
    """The text of a saved dataset's only column that is read, which may be larger than memory."""

    root: Path
    rows: "Dataset"
    field: str

    def manifest(self) -> tuple[SourceFile, ...]:
        paths = sorted(Path(each["filename"]) for each in self.rows.cache_files)
        names = [f"{os.path.relpath(path, self.root)}, column {self.field}" for path in paths]
        return tuple(map(source_file, names, paths))

    def documents(self) -> Iterator[bytes]:
        for some in self.rows.iter(batch_size=_ROWS_TOGETHER):
            yield from (text.encode() for text in some[self.field] if text)


def is_saved(path: Path) -> bool:
    """Whether a path is that of a saved dataset, also of splits, or of one copied in part."""
    marks = [(path / name).is_file() for name in ("dataset_info.json", "state.json")]
    some = all(marks) or (any(marks) and any(path.glob("*.arrow")))
    return some or (path / "dataset_dict.json").is_file()


def open_saved(path: Path, field: str) -> SavedDataset:
    """Open a saved dataset to read the text of one column."""
    try:
        import datasets
    except ImportError as error:
        raise DataError(not_installed("a saved dataset", "datasets")) from error
    try:
        rows = datasets.load_from_disk(str(path), keep_in_memory=False)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"the dataset {path} cannot be read ({error}); save it again, or copy its whole folder"
        ) from error
    if isinstance(rows, datasets.DatasetDict):
        raise DataError(f"{path} holds the splits {', '.join(rows)}; name one, as {path}/SPLIT")
    if getattr(rows.features.get(field), "dtype", None) not in _TEXT_TYPES:
        raise DataError(
            f"the dataset {path} has no text in a column {field!r}; name the one that has it "
            f"as `json_field`, among {', '.join(rows.column_names)}"
        )
    return SavedDataset(path, rows.with_format(None).select_columns([field]), field)


Text = TextFolder | SavedDataset
"""The documents of a corpus, which can be read as often as they are needed."""


def text_at(path: Path, field: str = "text") -> Text:
    return open_saved(path, field) if is_saved(path) else find_text(path, field)
