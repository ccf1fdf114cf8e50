"""Atomic replacement of files: the new one is written beside the old one, synced, then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces the one at `path` when the block ends without an error.

    A crash leaves either the old file or the new one, whole.

    Raises:
        OSError: the disk is full or broken; the old file stays.
    """
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file atomically, as `atomic_write` does.

    Raises:
        OSError: the disk is full or broken; the old file stays.
    """
    with atomic_write(path) as file:
        file.write(content)
