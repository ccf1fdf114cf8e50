"""Text at a place, whatever keeps it: files, lines of JSON, or a dataset of Hugging Face's on disk.

A text file is one document; a longer one is cut into passages of about `PASSAGE_BYTES`, at the ends
of lines, so that a single long file has a part that can be held out. Each line of a `.jsonl` file
is an object, and one of its fields is a document.

Files are taken in the order of their paths below the folder. Left out are hidden files, files that
begin like binary ones (a NUL byte in their first kilobytes, as git decides), and all that is in the
folder of a run, which the run that reads the text may be writing.

A row of a dataset is a document. The package (the extra `hugging-face`) maps the rows into memory,
so a dataset may be larger than that. The files of the corpus are the Arrow files that hold the
rows, each with the column that is read: hosts that read other columns, or copies of other bytes,
differ in them. Two equal datasets may differ in what else is in their folders.
"""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from islands.protocol.errors import DataError, not_installed

if TYPE_CHECKING:
    from datasets import Dataset

PASSAGE_BYTES = 1 << 16
JSON_LINES = ".jsonl"
RUN_MARKS = ("run.json", "hub.lock")
"""Each of these files makes a folder below the corpus's one that of a run."""

_LOOKED_AT_BYTES = 8192


class SourceFile(msgspec.Struct, frozen=True):
    """One file of a corpus: its path below the corpus's folder, its size, and its digest."""

    path: str
    size_bytes: int
    digest: str

    def __str__(self) -> str:
        """Render as one line of a manifest."""
        return f"{self.path} {self.size_bytes} {self.digest}"


def source_file(name: str, path: Path) -> SourceFile:
    """Read a file and describe it by a name."""
    return SourceFile(name, path.stat().st_size, file_digest(path))


@dataclass(frozen=True, slots=True)
class TextFolder:
    """The files of a corpus of text.

    Attributes:
        root: Folder that the paths are below.
        names: Paths of the files, sorted.
        field: Name of the field that holds the text of a line of JSON.
    """

    root: Path
    names: tuple[str, ...]
    field: str = "text"

    def manifest(self) -> tuple[SourceFile, ...]:
        return tuple(source_file(_shown(name), self.root / name) for name in self.names)

    def documents(self) -> Iterator[bytes]:
        """Yield the text of every document as UTF-8, in order; none is empty.

        Raises:
            DataError: A line of JSON is none, or has no such field.
        """
        for name in self.names:
            path = self.root / name
            with path.open("rb") as file:
                if path.suffix == JSON_LINES:
                    for number, line in enumerate(file, 1):
                        yield from _text_of(line, self.field, f"{path}:{number}")
                else:
                    while passage := file.read(PASSAGE_BYTES):
                        yield passage + file.readline(PASSAGE_BYTES)


def find_text(place: Path, field: str = "text") -> TextFolder:
    """Find the text files at a place: a folder, a file, or a pattern such as `docs/**/*.md`.

    Raises:
        DataError: There is no text; the sentence names the place.
    """
    root, found = place, list(place.rglob("*")) if place.is_dir() else []
    if not found:
        root = _before_pattern(place)
        found = _matches(place)
    below = [each.relative_to(root) for each in found]
    runs = _runs(root, below)
    names = sorted(
        name.as_posix() for name in below if runs.isdisjoint(name.parents) and _is_text(root, name)
    )
    if not names:
        raise DataError(f"there is no text at {place}: name a folder, a file or a pattern of files")
    return TextFolder(root, tuple(names), field)


def exists(place: Path) -> bool:
    """Whether a path, or a pattern, leads to any file or folder."""
    return place.exists() or bool(_matches(place))


def file_digest(path: Path) -> str:
    """Compute the blake3-128 of a file, in hexadecimal, without copying it into memory."""
    hasher = blake3(max_threads=blake3.AUTO)
    return hasher.update_mmap(path).hexdigest(length=16)


def _matches(pattern: Path) -> list[Path]:
    return [Path(each) for each in glob.glob(str(pattern), recursive=True)]  # noqa: PTH207  (the pattern may be absolute)


def _before_pattern(place: Path) -> Path:
    """Return the folder that the paths of the found files are told below."""
    parts = place.parts
    plain = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return Path(*parts[:plain])


def _runs(root: Path, names: list[Path]) -> set[Path]:
    """Return the folders of runs among those that hold the files, but not the root itself."""
    folders = {folder for name in names for folder in name.parents} - {Path()}
    return {
        folder for folder in folders if any((root / folder / mark).is_file() for mark in RUN_MARKS)
    }


def _shown(name: str) -> str:
    """Return a name that hosts can compare as text, though its bytes may be no UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def _is_text(root: Path, name: Path) -> bool:
    if any(part.startswith(".") for part in name.parts) or not (root / name).is_file():
        return False
    with (root / name).open("rb") as file:
        return b"\0" not in file.read(_LOOKED_AT_BYTES)


def _text_of(line: bytes, field: str, place: str) -> Iterator[bytes]:
    """Yield the text of a line of JSON, unless the line is blank or the text is empty."""
    if not line.strip():
        return
    try:
        found = msgspec.json.decode(line, type=dict[str, object]).get(field)
    except msgspec.MsgspecError as error:
        raise DataError(f"{place} is no JSON object on one line: {error}") from error
    if not isinstance(found, str):
        raise DataError(
            f"{place} has no text in {field!r}; name the field that has it as `json_field`"
        )
    if found:
        yield found.encode("utf-8", "surrogatepass")


# --- datasets of Hugging Face ------------------------------------------------------------------

MARKS = ("dataset_info.json", "state.json")
"""Both of these files make a folder that of a saved dataset; one does, beside Arrow files."""

SPLITS_MARK = "dataset_dict.json"
"""This file makes a folder that of a saved `DatasetDict`, with a folder for every split."""

_TEXT_TYPES = ("string", "large_string")
_ROWS_TOGETHER = 64


@dataclass(frozen=True, slots=True)
class SavedDataset:
    """The text of one column of a saved dataset.

    Attributes:
        root: Folder of the dataset.
        rows: The dataset, whose only column is the one that holds the text.
        field: Name of that column.
    """

    root: Path
    rows: "Dataset"
    field: str

    def manifest(self) -> tuple[SourceFile, ...]:
        paths = sorted(Path(each["filename"]) for each in self.rows.cache_files)
        names = [f"{os.path.relpath(path, self.root)}, column {self.field}" for path in paths]
        return tuple(map(source_file, names, paths))

    def documents(self) -> Iterator[bytes]:
        """Yield the text of every row as UTF-8, in order; rows without text are left out."""
        for some in self.rows.iter(batch_size=_ROWS_TOGETHER):
            yield from (text.encode() for text in some[self.field] if text)


def is_saved(place: Path) -> bool:
    """Whether a path is that of a saved dataset, also one that was copied in part."""
    marks = [(place / mark).is_file() for mark in MARKS]
    some = all(marks) or (any(marks) and any(place.glob("*.arrow")))
    return some or (place / SPLITS_MARK).is_file()


def open_saved(place: Path, field: str) -> SavedDataset:
    """Open a saved dataset to read the text of one column.

    Raises:
        DataError: The package is missing, the dataset is damaged, holds several splits, or has no
            such column of text; the sentence says what to name instead.
    """
    try:
        import datasets
    except ImportError as error:
        raise DataError(not_installed("a saved dataset", "datasets")) from error
    try:
        rows = datasets.load_from_disk(str(place), keep_in_memory=False)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"the dataset {place} cannot be read ({error}); save it again, or copy its whole folder"
        ) from error
    if isinstance(rows, datasets.DatasetDict):
        raise DataError(f"{place} holds the splits {', '.join(rows)}; name one, as {place}/SPLIT")
    if getattr(rows.features.get(field), "dtype", None) not in _TEXT_TYPES:
        raise DataError(
            f"the dataset {place} has no text in a column {field!r}; name the one that has it "
            f"as `json_field`, among {', '.join(rows.column_names)}"
        )
    return SavedDataset(place, rows.with_format(None).select_columns([field]), field)


# --- either of them ----------------------------------------------------------------------------

Text = TextFolder | SavedDataset
"""The documents of a corpus, which can be read as often as they are needed."""


def text_at(place: Path, field: str = "text") -> Text:
    """Find the text at a place: a folder, a file, a pattern such as `docs/**/*.md`, or a dataset.

    Raises:
        DataError: There is no text, or it cannot be read; the sentence names the place.
    """
    return open_saved(place, field) if is_saved(place) else find_text(place, field)
