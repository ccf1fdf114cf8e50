"""Python's own standard-library source as a byte corpus, which every machine has without download.

The corpus is all `*.py` files of the standard library except its tests and installed packages, in
the order of their paths. The hash of a file's path decides whether it is for validation, so neither
part changes when another file does. Files are joined by a NUL byte, which no source has.

The library differs between Python versions. The manifest (path, size and digest of every file)
therefore has a digest, which is part of the layout's fingerprint: hosts with other bytes are
refused, and `first_difference` names the file.
"""

import hashlib
import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from islands.protocol.errors import DataError

Part = Literal["train", "validation"]

SEPARATOR = b"\0"
_LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages"})
_VALIDATION_SHARE = 20  # one file in this many is for validation


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """One file of the manifest."""

    path: str
    size_bytes: int
    digest: str
    part: Part

    def __str__(self) -> str:
        """Render as one line of the manifest."""
        return f"{self.path} {self.size_bytes} {self.digest} {self.part}"


@dataclass(frozen=True, slots=True, eq=False)
class ByteCorpus:
    """Two byte strings and the manifest of the files they were made of."""

    train: NDArray[np.uint8]
    validation: NDArray[np.uint8]
    manifest: tuple[CorpusFile, ...]

    @property
    def digest(self) -> str:
        """blake2b-128 of the manifest."""
        lines = "\n".join(map(str, self.manifest))
        return hashlib.blake2b(lines.encode(), digest_size=16).hexdigest()


def first_difference(here: Sequence[CorpusFile], there: Sequence[CorpusFile]) -> str | None:
    """Return a text with the first file in which two manifests differ; None when they agree."""
    for mine, theirs in zip_longest(here, there):
        if mine != theirs:
            return f"here {mine or 'no further file'}; there {theirs or 'no further file'}"
    return None


@cache
def standard_library() -> ByteCorpus:
    """Read the corpus of the running Python, once per process.

    Raises:
        DataError: This Python has no library source on disk; use one that does, or another task.
    """
    return read_corpus(Path(sysconfig.get_path("stdlib")))


def read_corpus(root: Path) -> ByteCorpus:
    """Make a corpus of the `*.py` files below a folder, except tests and installed packages.

    Raises:
        DataError: A part would be empty, as the folder has too few files.
    """
    parts: dict[Part, list[bytes]] = {"train": [], "validation": []}
    manifest: list[CorpusFile] = []
    for name in sorted(_names(root)):
        data = (root / name).read_bytes()
        part = part_of(name)
        parts[part].append(data)
        manifest.append(CorpusFile(name, len(data), _digest(data), part))
    if not (parts["train"] and parts["validation"]):
        raise DataError(f"{root} holds {len(manifest)} Python files, too few to train on")
    return ByteCorpus(_join(parts["train"]), _join(parts["validation"]), tuple(manifest))


def _names(root: Path) -> Iterator[str]:
    """Yield the paths of the files below a folder, without entering folders that are left out."""
    for place, folders, files in os.walk(root):
        folders[:] = [folder for folder in folders if folder not in _LEFT_OUT]
        for file in files:
            if file.endswith(".py"):
                yield (Path(place) / file).relative_to(root).as_posix()


def part_of(name: str) -> Part:
    """Return the part that a file belongs to, by the hash of its path."""
    number = int(_digest(name.encode())[:8], 16)
    return "train" if number % _VALIDATION_SHARE else "validation"


def _join(files: Sequence[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(SEPARATOR.join(files), np.uint8)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
