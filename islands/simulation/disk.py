"""A disk in memory that does what disks do when a host dies: it loses or tears what was not synced.

A sync that is part of a worker's work takes as long as that work: it is complete when the worker
says so, by `settle`. Any other sync holds up its host, and so is complete when it returns. A crash
keeps, loses or tears every write that was not synced by then, as the seed has it.
"""

import random
from collections.abc import Sequence

from islands.errors import DiskError
from islands.files.disk import DiskFile


class SimulatedFile:
    """A file of a `SimulatedDisk`, as it was when it was opened."""

    def __init__(self, content: bytes, at_bytes: int) -> None:
        """Read from a place on."""
        self._content = content
        self._at = at_bytes

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return len(self._content)

    def read_into(self, buffer: memoryview) -> int:
        """Fill a buffer with what comes next."""
        piece = self._content[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        """Nothing is held."""


class SimulatedDisk:
    """Named files of one host.

    Attributes:
        lost: writes that a crash took back.
        torn: writes of which a crash left a part.
        full: whether nothing more can be written.
    """

    def __init__(self, rng: random.Random) -> None:
        """An empty disk; `rng` decides what a crash leaves behind."""
        self.lost = 0
        self.torn = 0
        self.full = False
        self._rng = rng
        self._durable: dict[str, bytes] = {}
        self._cached: dict[str, bytes] = {}
        self._syncing: dict[str, bytes] = {}
        self._working = False

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Replace a file's content in the cache."""
        if self.full:
            raise DiskError(f"{name} cannot be written: no space left on the simulated disk")
        self._cached[name] = b"".join(parts)

    def sync(self, name: str) -> None:
        """Ask for durability: granted at once, unless a worker is at work."""
        self._syncing[name] = self._cached[name]
        if not self._working:
            self.settle()

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        """A file as the host sees it now."""
        content = self._cached.get(name, self._durable.get(name))
        return None if content is None else SimulatedFile(content, at_bytes)

    def close(self) -> None:
        """Nobody is kept out: it is like a disk over a network that has no locks."""

    @property
    def syncing(self) -> bool:
        """Whether a crash would now find something that was to be synced and is not."""
        return bool(self._syncing)

    def begin_work(self) -> None:
        """A worker begins: its syncs are not complete before `settle`."""
        self._working = True

    def settle(self) -> None:
        """The device has written everything it was asked to."""
        self._durable.update(self._syncing)
        self._syncing.clear()
        self._working = False

    def copied(self) -> dict[str, bytes]:
        """What a copy of the disk holds that somebody makes now."""
        return dict(self._durable)

    def restore(self, copy: dict[str, bytes]) -> None:
        """Put a copy in the place of all that is there."""
        self._durable = dict(copy)
        self._cached.clear()
        self._syncing.clear()

    def crash(self) -> None:
        """The host died: each write that is not durable is kept, lost or torn."""
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
