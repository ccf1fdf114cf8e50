"""Python's own standard-library source as a byte corpus, which every machine has without download.

The files are in the order of their paths and joined by a NUL byte, which no source has. The hash of
a file's path decides whether it is for validation, so neither part changes when another file does.

The library differs between Python versions, so the digest of all its files is part of the layout's
fingerprint: hosts with other bytes are refused.
"""

import hashlib
import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from islands.protocol.errors import DataError

Part = Literal["train", "validation"]

SEPARATOR = b"\0"
_LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages"})
_VALIDATION_SHARE = 20  # one file in this many is for validation


@dataclass(frozen=True, slots=True, eq=False)
class ByteCorpus:
    """Two byte strings, and the blake2b-128 of the paths, sizes and digests of their files."""

    train: NDArray[np.uint8]
    validation: NDArray[np.uint8]
    digest: str


@cache
def standard_library() -> ByteCorpus:
    return read_corpus(Path(sysconfig.get_path("stdlib")))


def read_corpus(root: Path) -> ByteCorpus:
    """Make a corpus of the `*.py` files below a folder, except tests and installed packages."""
    parts: dict[Part, list[bytes]] = {"train": [], "validation": []}
    manifest: list[str] = []
    for name in sorted(_names(root)):
        data = (root / name).read_bytes()
        part = part_of(name)
        parts[part].append(data)
        manifest.append(f"{name} {len(data)} {_digest(data)} {part}")
    if not (parts["train"] and parts["validation"]):
        raise DataError(f"{root} holds {len(manifest)} Python files, too few to train on")
    digest = _digest("\n".join(manifest).encode())
    return ByteCorpus(_join(parts["train"]), _join(parts["validation"]), digest)


def _names(root: Path) -> Iterator[str]:
    """Yield the paths of the files below a folder, without entering folders that are left out."""
    for here, folders, files in os.walk(root):
        folders[:] = [folder for folder in folders if folder not in _LEFT_OUT]
        for file in files:
            if file.endswith(".py"):
                yield (Path(here) / file).relative_to(root).as_posix()


def part_of(name: str) -> Part:
    number = int(_digest(name.encode())[:8], 16)
    return "train" if number % _VALIDATION_SHARE else "validation"


def _join(files: Sequence[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(SEPARATOR.join(files), np.uint8)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
