"""Atomic replacement of files: the new one is written beside the old one, synced, then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces the one at `path` when the block ends without an error.

    A crash, or a power loss, leaves either the old file or the new one, whole; after the block it
    leaves the new one.

    Raises:
        OSError: the disk is full or broken; the old file stays.
    """
    fresh = path.with_name(f".{path.name}.new")  # hidden: a user may have a file of any other name
    with fresh.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder survive a power loss: a rename is lost with its folder's entry.

    Raises:
        OSError: the disk is broken.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file atomically, as `atomic_write` does.

    Raises:
        OSError: the disk is full or broken; the old file stays.
    """
    with atomic_write(path) as file:
        file.write(content)
