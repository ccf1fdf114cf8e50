"""A disk in memory that loses or tears unsynced writes when its host crashes, as real disks do.

A sync within a worker's piece of work takes as long as that work: it is complete when the worker
calls `settle`. Any other sync blocks its host, and so is complete when it returns. A crash keeps,
loses or tears every write that was not synced by then, as the seed decides.
"""

import random
from collections.abc import Sequence

from islands.errors import DiskError
from islands.files.disk import DiskFile


class SimulatedFile:
    """An open file of a `SimulatedDisk`, with the content that it had when it was opened."""

    def __init__(self, content: bytes, at_bytes: int) -> None:
        """Begin to read at an offset."""
        self._content = content
        self._at = at_bytes

    @property
    def size(self) -> int:
        """Size of the whole file in bytes."""
        return len(self._content)

    def read_into(self, buffer: memoryview) -> int:
        """Read the next bytes into a buffer; returns how many they are."""
        piece = self._content[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        """Do nothing, since an open file holds no resources."""


class SimulatedDisk:
    """Named files of one host.

    Attributes:
        lost: number of writes that crashes lost.
        torn: number of writes of which crashes left only a part.
        full: whether every write fails for lack of space.
    """

    def __init__(self, rng: random.Random) -> None:
        """Make an empty disk; `rng` decides what a crash leaves behind."""
        self.lost = 0
        self.torn = 0
        self.full = False
        self._rng = rng
        self._durable: dict[str, bytes] = {}
        self._cached: dict[str, bytes] = {}
        self._syncing: dict[str, bytes] = {}
        self._working = False

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Replace a file's content in the cache, which a crash may lose."""
        if self.full:
            raise DiskError(f"{name} cannot be written: no space left on the simulated disk")
        self._cached[name] = b"".join(parts)

    def sync(self, name: str) -> None:
        """Make a file durable: at once, or at `settle` while a worker is at work."""
        self._syncing[name] = self._cached[name]
        if not self._working:
            self.settle()

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        """Open a file as the host sees it now; None if there is none."""
        content = self._cached.get(name, self._durable.get(name))
        return None if content is None else SimulatedFile(content, at_bytes)

    def close(self) -> None:
        """Do nothing: the disk has no lock to release, like a network file system without locks."""

    @property
    def syncing(self) -> bool:
        """Whether a sync is under way, which a crash now would interrupt."""
        return bool(self._syncing)

    def begin_work(self) -> None:
        """Begin a worker's piece of work, whose syncs are complete only at `settle`."""
        self._working = True

    def settle(self) -> None:
        """Complete all syncs that are under way."""
        self._durable.update(self._syncing)
        self._syncing.clear()
        self._working = False

    def copied(self) -> dict[str, bytes]:
        """Return a copy of all durable files."""
        return dict(self._durable)

    def restore(self, copy: dict[str, bytes]) -> None:
        """Replace all files by a copy."""
        self._durable = dict(copy)
        self._cached.clear()
        self._syncing.clear()

    def crash(self) -> None:
        """Crash the host: each write that is not durable is kept, lost or torn."""
        for name in sorted(self._cached):
            before, written = self._durable.get(name, b""), self._cached[name]
            if before == written:
                continue
            outcome = self._rng.random()
            if outcome < 1 / 3:
                self._durable[name] = written
            elif outcome < 2 / 3 and written:
                torn_at = self._rng.randrange(len(written))
                self._durable[name] = written[:torn_at] + before[torn_at:]
                self.torn += 1
            else:
                self.lost += 1
        self._cached.clear()
        self._syncing.clear()
        self._working = False
