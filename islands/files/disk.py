"""A small set of named files, each of which a crash leaves whole, as it was or as it is to be."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from islands.files.folder_lock import make_private
from islands.files.whole_files import atomic_write, link_file
from islands.protocol.errors import DiskError, JournalError
from messaging.clock import MonotonicClock

PIECE_BYTES = 1 << 22
"""Bytes of one write when the speed of a disk is measured."""


class DiskFile(Protocol):
    """A file that is read from front to back; the caller that opened it must close it."""

    @property
    def size(self) -> int:
        """Bytes of the whole file."""

    def read_into(self, buffer: memoryview) -> int:
        """Fill a buffer with the next bytes; return their number, fewer only at the file's end."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A small set of named files, each of which is replaced whole.

    Each method and those of its files raise `DiskError` if the disk is full, read-only or broken.
    """

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Replace a file; the new one is durable when this returns.

        A crash meanwhile, or an error, leaves either the old file or the new one, whole.
        """

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        """Open a file for reading from an offset; return None if there is no such file."""

    def link(self, name: str, second: str) -> None:
        """Give the content that a file has now a second name, which no later write changes."""

    def close(self) -> None:
        """Let other processes use the disk; do not read or write after that."""


class RealFile:
    """A file of a `RealDisk`, read without buffering."""

    def __init__(self, path: Path, at_bytes: int) -> None:
        self._path = path
        self._file = path.open("rb", buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size
        self._file.seek(at_bytes)

    def read_into(self, buffer: memoryview) -> int:
        filled = 0
        try:
            while filled < len(buffer) and (count := self._file.readinto(buffer[filled:])):
                filled += count
        except OSError as error:
            raise DiskError(f"{self._path} cannot be read: {error}") from error
        return filled

    def close(self) -> None:
        self._file.close()


class RealDisk:
    """Files in one folder, whose lock, if there is one, `close` releases.

    Some of them may be `elsewhere`, at a path by name.
    """

    def __init__(
        self,
        folder: Path,
        lock: IO[bytes] | None = None,
        elsewhere: Mapping[str, Path] | None = None,
    ) -> None:
        """Make the folder if it is missing."""
        self._folder = folder
        self._lock = lock
        self._elsewhere = elsewhere or {}
        try:
            make_private(folder)
        except OSError as error:
            raise JournalError(f"the folder {folder} cannot be made: {error}") from error

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        path, size_bytes = self._path(name), sum(memoryview(part).nbytes for part in parts)
        try:
            if not path.parent.exists():
                make_private(path.parent)
            with atomic_write(path) as file:
                if size_bytes:  # a large file whose room is claimed first is written faster
                    os.posix_fallocate(file.fileno(), 0, size_bytes)
                for part in parts:
                    file.write(part)
        except OSError as error:
            raise DiskError(f"{path} cannot be written: {error}") from error

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        path = self._path(name)
        try:
            return RealFile(path, at_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DiskError(f"{path} cannot be read: {error}") from error

    def link(self, name: str, second: str) -> None:
        path, other = self._path(name), self._path(second)
        try:
            make_private(other.parent)
            link_file(path, other)
        except OSError as error:
            raise DiskError(f"{path} cannot be linked to {other}: {error}") from error

    def _path(self, name: str) -> Path:
        return self._elsewhere.get(name, self._folder / name)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


def write_bytes_per_s(folder: Path, size_bytes: int) -> float | None:
    """Measure the speed of writing and flushing one file; None if it cannot be written.

    The file has no name in its folder, so it goes with this process whatever happens. A small one
    may fit into the disk's own memory.
    """
    clock, piece = MonotonicClock(), os.urandom(PIECE_BYTES)
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            began_s = clock.now_s()
            for start in range(0, size_bytes, PIECE_BYTES):
                file.write(memoryview(piece)[: size_bytes - start])
            os.fsync(file.fileno())
            return size_bytes / max(clock.now_s() - began_s, 1e-9)
    except OSError:
        return None
