"""A dataset of Hugging Face's `datasets` on disk, read like a folder of text: a row is a document.

`Dataset.save_to_disk` makes its folder. A saved `DatasetDict` has such a folder for every split,
and one of them is read: `FOLDER/train`. The package (the extra `hugging-face`) maps the
rows into memory, so a dataset may be larger than that.

The files of the corpus are the Arrow files that hold the rows, each with the column that is read:
hosts that read other columns, or copies of other bytes, differ in them. What else is in the folder
says how the dataset was made, and two equal datasets may differ in it.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import msgspec

from islands.protocol.errors import DataError, not_installed
from islands.tasks.data.documents import SourceFile, file_digest

if TYPE_CHECKING:
    from datasets import Dataset

STATE = "state.json"
DATASET_MARKS = ("dataset_info.json", STATE)
"""Both of these files make a folder that of a saved dataset; one does, beside Arrow files."""

SPLITS_MARK = "dataset_dict.json"
"""This file makes a folder that of a saved `DatasetDict`, with a folder for every split."""

_Facts = TypeVar("_Facts", bound=msgspec.Struct)
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
        """Read every file of rows once and describe it."""
        paths = sorted(Path(each["filename"]) for each in self.rows.cache_files)
        return tuple(
            SourceFile(
                f"{os.path.relpath(path, self.root)}, column {self.field}",
                path.stat().st_size,
                file_digest(path),
            )
            for path in paths
        )

    def documents(self) -> Iterator[bytes]:
        """Yield the text of every row as UTF-8, in order; rows without text are left out."""
        for some in self.rows.iter(batch_size=_ROWS_TOGETHER):
            for text in some[self.field]:
                if text:
                    yield text.encode()


def is_saved(place: Path) -> bool:
    """Whether a path is that of a saved dataset, of several splits, or of a split in their folder.

    A split that is missing counts, too, and so does a folder that was copied in part: `open_saved`
    says what they lack.
    """
    if (place / SPLITS_MARK).is_file():
        return True
    marks = sum((place / mark).is_file() for mark in DATASET_MARKS)
    if marks:
        return marks == len(DATASET_MARKS) or any(place.glob("*.arrow"))
    return not place.exists() and (place.parent / SPLITS_MARK).is_file()


def open_saved(place: Path, field: str) -> SavedDataset:
    """Open a saved dataset to read the text of one column.

    Raises:
        DataError: The package is missing, the place is none of one dataset, the dataset is damaged
            or empty, or it has no such column of text; the sentence says what to name instead.
    """
    _require_one_split(place)
    state, package = _facts(place / STATE, _State), _package()
    rows = _loaded(place, state, package)
    columns = ", ".join(rows.column_names)
    if field not in rows.column_names:
        raise DataError(
            f"the dataset {place} has no column {field!r}; name the one that has the text as "
            f"`json_field`, among {columns}"
        )
    told = rows.features[field]
    if not isinstance(told, package.Value) or told.dtype not in _TEXT_TYPES:
        raise DataError(
            f"column {field!r} of the dataset {place} is no text, but {told}; name the one that "
            f"has the text as `json_field`, among {columns}"
        )
    return SavedDataset(place, rows.with_format(None).select_columns([field]), field)


class _State(msgspec.Struct):
    """The files that hold the rows, by `state.json`; without rows there are none."""

    files: list[dict[str, object]] = msgspec.field(name="_data_files")


class _Splits(msgspec.Struct):
    """The content of `dataset_dict.json`."""

    splits: list[str]


def _loaded(place: Path, state: _State, package: ModuleType) -> "Dataset":
    """Map the rows of one dataset into memory, all columns of them."""
    try:
        rows = state.files and package.Dataset.load_from_disk(str(place), keep_in_memory=False)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(place, error) from error
    if not rows:
        raise DataError(f"the dataset {place} has no rows; save one that has some text")
    return rows


def _require_one_split(place: Path) -> None:
    """Check that a path is not that of several splits, nor of a split that they lack."""
    if (place / SPLITS_MARK).is_file():
        names = _facts(place / SPLITS_MARK, _Splits).splits
        some = f"; name one of them, as in {place / names[0]}" if names else ""
        raise DataError(f"{place} holds the splits {', '.join(names) or 'none'}{some}")
    if not place.exists():
        names = _facts(place.parent / SPLITS_MARK, _Splits).splits
        raise DataError(
            f"there is no split {place.name!r} in {place.parent}; name one of {', '.join(names)}"
        )


def _facts(path: Path, kind: type[_Facts]) -> _Facts:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError) as error:
        raise _damaged(path.parent, error) from error


def _damaged(place: Path, error: Exception) -> DataError:
    return DataError(
        f"the dataset {place} cannot be read ({error}); save it again, or copy its whole folder"
    )


def _package() -> ModuleType:
    try:
        import datasets
    except ImportError as error:
        raise DataError(not_installed("a saved dataset", "datasets")) from error
    found: ModuleType = datasets
    return found
