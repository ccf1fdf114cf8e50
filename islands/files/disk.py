"""A small set of named files whose content survives a crash once it is synchronised."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from islands.files.folder_lock import make_private
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
        """Fill a buffer with the next bytes; return their number, fewer only at the file's end.

        Raises:
            DiskError: the disk is broken.
        """

    def close(self) -> None:
        """Close the file."""


class Disk(Protocol):
    """A small set of named files, whose content is durable only after `sync`."""

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Replace a file's content; a crash before `sync` may lose or tear it.

        Raises:
            DiskError: the disk is full, read-only or broken.
        """

    def sync(self, name: str) -> None:
        """Make a file's content survive a crash.

        Raises:
            DiskError: the disk is broken; do not assume that anything is durable.
        """

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        """Open a file for reading from an offset; return None if there is no such file.

        Raises:
            DiskError: the disk is broken.
        """

    def close(self) -> None:
        """Let other processes use the disk; do not read or write after that."""


class RealFile:
    """A file of a `RealDisk`, read without buffering.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, at_bytes: int) -> None:
        self._path = path
        self._file = path.open("rb", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size
        self._file.seek(at_bytes)

    @property
    def size(self) -> int:
        return self._size

    def read_into(self, buffer: memoryview) -> int:
        """Fill a buffer; one read of the system may return fewer bytes than requested."""
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
    """Files in one folder.

    Args:
        folder: the folder, which is made if it is missing.
        lock: lock file of the folder, which `close` releases; None: the folder is not locked.
        elsewhere: paths of files outside the folder, by name.
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
        """Replace a file's content; make its folder anew if that is gone."""
        path = self._path(name)
        try:
            if not path.parent.exists():
                make_private(path.parent)
            with path.open("wb") as file:
                for part in parts:
                    file.write(part)
        except OSError as error:
            raise DiskError(f"{path} cannot be written: {error}") from error

    def sync(self, name: str) -> None:
        """Flush a file and its folder entry to the device."""
        file = self._path(name)
        for path, flags in ((file, os.O_RDWR), (file.parent, os.O_RDONLY)):
            try:
                _flush(path, flags)
            except OSError as error:
                raise DiskError(f"{path} cannot be flushed: {error}") from error

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        path = self._path(name)
        try:
            return RealFile(path, at_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DiskError(f"{path} cannot be read: {error}") from error

    def _path(self, name: str) -> Path:
        return self._elsewhere.get(name, self._folder / name)

    def close(self) -> None:
        """Release the lock of the folder."""
        if self._lock is not None:
            self._lock.close()


def _flush(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes_per_s(folder: Path, size_bytes: int) -> float | None:
    """Measure the speed of writing and flushing one file; None if it cannot be written.

    Args:
        folder: an existing folder on the disk; the file in it has no name, so it goes with this
            process whatever happens.
        size_bytes: size of the file. A small one may fit into the disk's own memory.
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
