"""Files that are replaced whole: written beside the old one, then renamed once they are durable."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of another one when the block ends without an error.

    A crash leaves the old one or the new one, whole.

    Raises:
        OSError: the disk is full or broken; the old one stays.
    """
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def replace_file(path: Path, content: bytes) -> None:
    """Put a content in the place of a file, as `replacing`.

    Raises:
        OSError: the disk is full or broken; the old one stays.
    """
    with replacing(path) as file:
        file.write(content)
