"""The documents of a user's text: files of a folder or a pattern, and lines of JSON.

A text file is one document; a longer one is cut into passages of about `PASSAGE_BYTES`, at the ends
of lines, so that a single long file has a part that can be held out. Each line of a `.jsonl` file
is an object, and one of its fields is a document.

Files are taken in the order of their paths below the folder. Left out are hidden files, files that
begin like binary ones (a NUL byte in their first kilobytes, as git decides), and all that is in the
folder of a run, which the run that reads the text may be writing.
"""

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from blake3 import blake3

from islands.protocol.errors import DataError

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
        """Read every file once and describe it."""
        return tuple(
            SourceFile(name, (self.root / name).stat().st_size, file_digest(self.root / name))
            for name in self.names
        )

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
        DataError: There is no text, or a name is no UTF-8; the sentence names the place.
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
    for name in names:
        _require_utf8(name, root)
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


def _require_utf8(name: str, root: Path) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the name of the file {name!a} in {root} is no UTF-8; hosts compare names as "
            "text, so rename it"
        ) from error


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
