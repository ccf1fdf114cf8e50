"""Rotation of files that grow as long as a run does: at a limit each is renamed; one older is kept.

A file and the one before it never hold more than twice the limit (and a last entry), whatever the
run does and however long it takes. Readers take `older(path)` first, if it exists. A tape,
`metrics.jsonl` and `run.log` are `RotatingFile`s. A child process keeps its own output file open,
so that one is truncated in place (`islands.run.hosting.process_output`). TensorBoard's event files
are rotated in another way (`islands.run.records.tensorboard`).
"""

import contextlib
import os
from pathlib import Path
from typing import IO

LIMIT_BYTES = 256 * 2**20


def older(path: Path) -> Path:
    """Return the path to which a full file of this name is renamed."""
    return path.with_name(f"{path.stem}.1{path.suffix}")


class RotatingFile:
    """Appends lines to a file, and rotates it when it has grown to a limit.

    Args:
        path: the growing file; an existing file is continued, on a new line.
        limit_bytes: size at which the file is rotated.
        head: a whole line that begins each file, and each continuation of one.
    """

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES, head: bytes = b"") -> None:
        """Leave opening the file to the first `write`, because the disk may be full now."""
        self._path = path
        self._limit_bytes = limit_bytes
        self._head = self._due_head = head
        self._file: IO[bytes] | None = None
        self._size = 0
        self._torn = False

    @property
    def room_bytes(self) -> int:
        """How many bytes the file takes before it is rotated."""
        return self._limit_bytes - self._size

    def write(self, data: bytes) -> None:
        """Append whole lines.

        Raises:
            OSError: the disk is full or broken; no part of the lines is in the file.
        """
        file = self._file or self._open()
        if self._size >= self._limit_bytes:
            file = self._turn_over(file)
        whole = (b"\n" if self._torn else b"") + self._due_head + data
        write_whole(file, whole, self._size)
        self._torn, self._due_head = False, b""
        self._size += len(whole)

    def close(self) -> None:
        """Close the file; do not write after that."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> IO[bytes]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._file = self._path.open("ab", buffering=0)
        self._size = self._path.stat().st_size
        self._torn = _is_torn(self._path, self._size)
        return file

    def _turn_over(self, full: IO[bytes]) -> IO[bytes]:
        """Rename the full file and begin a new one; if that fails, the next write tries again."""
        with contextlib.suppress(FileNotFoundError):  # an earlier try renamed it, and then failed
            self._path.replace(older(self._path))
        file = self._file = self._path.open("ab", buffering=0)
        self._size, self._torn, self._due_head = 0, False, self._head
        full.close()
        return file


def write_whole(file: IO[bytes], data: bytes, size: int) -> None:
    """Append all of the data to an unbuffered file of this size, or nothing.

    Raises:
        OSError: the disk is full or broken.
    """
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        with contextlib.suppress(OSError):  # a device has no size
            os.ftruncate(file.fileno(), size)
        raise


def _is_torn(path: Path, size: int) -> bool:
    """Whether a file ends within a line, as it may after its host died."""
    if size == 0:
        return False
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) not in (b"\n", b"")
    except OSError:
        return False
