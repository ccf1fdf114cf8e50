"""A disk in memory that fails as real disks do, and loses in a crash what was not durable.

A write within a worker's piece of work takes as long as that work: it is durable when the worker
calls `settle`. Any other write blocks its host, and so is durable when it returns. After a crash a
file whose write was not durable by then is the old one or the new one, as the seed decides.

A disk without space has no room for a new file, so the old one stays.
"""

import random
from collections.abc import Sequence
from io import BytesIO

from islands.files.disk import DiskFile
from islands.files.slots import Slots, name_of
from islands.protocol.errors import DiskError


class SimulatedFile(BytesIO):
    """An open file of a `SimulatedDisk`, with the content that it had when it was opened."""

    @property
    def size(self) -> int:
        return self.getbuffer().nbytes

    read_into = BytesIO.readinto


class SimulatedDisk:
    """Named files of one host; `rng` decides what a crash leaves behind.

    A worker's piece of work takes `slowness` times as long as usual.
    """

    def __init__(self, rng: random.Random) -> None:
        self.full = False
        self.failing = False
        self.slowness = 1.0
        self._rng = rng
        self.was_bad = False
        self._durable: dict[str, bytes] = {}
        self._written: dict[str, bytes] = {}
        self._working = False
        self._shared = False

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Replace a file, durably at once, or at `settle` while a worker is at work."""
        self._check_device(name)
        if self.full:
            raise DiskError(f"{name} cannot be written: no space left on the simulated disk")
        self._written[name] = b"".join(parts)
        if self._shared:  # another host sees it from now on, so it cannot become durable later
            self._settle_files()
        elif not self._working:
            self.settle()

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        """Open a file as the host sees it now; None if there is none."""
        self._check_device(name)
        content = self._written.get(name, self._durable.get(name))
        if content is None:
            return None
        file = SimulatedFile(content)
        file.seek(at_bytes)
        return file

    def link(self, name: str, second: str) -> None:
        self._check_device(name)
        self._written[second] = self._written.get(name, self._durable.get(name, b""))

    def close(self) -> None:
        """It has no lock to release, like a network file system without locks."""

    @property
    def writing(self) -> bool:
        """Whether a write is under way, which a crash now would interrupt."""
        return bool(self._written)

    def begin_work(self) -> None:
        """Begin a worker's piece of work, whose writes are durable only at `settle`."""
        self._working = True

    def settle(self) -> None:
        self._settle_files()
        self._working = False

    def _settle_files(self) -> None:
        self._durable.update(self._written)
        self._written.clear()

    def mounted(self, rng: random.Random) -> "SimulatedDisk":
        """Return the same disk as another host sees it, with writes of its own."""
        self._settle_files()  # another host sees what is being written, as it sees a cache
        other = SimulatedDisk(rng)
        other._durable = self._durable
        self._shared = other._shared = True
        return other

    def spoil(self, *, full: bool = False, failing: bool = False, slowness: float = 1.0) -> None:
        self.full, self.failing, self.slowness = full, failing, slowness
        self.was_bad = self.was_bad or full or failing

    def flip(self) -> str | None:
        """Flip a bit of one durable file whose loss nobody notices; return its name, or None.

        Such a file is the older slot of a pair that has a newer whole one.
        """
        slots = Slots(self)
        spare: list[str] = []
        for name in sorted({name_of(file) for file in self._durable if "/" not in file}):
            heads = [head for head in slots.heads(name) if slots.load(head) is not None]
            if len(heads) > 1:
                spare.append(min(heads, key=lambda head: head.sequence).file)
        if not spare:
            return None
        file = self._rng.choice(spare)
        content = bytearray(self._durable[file])
        content[self._rng.randrange(len(content))] ^= 1 << self._rng.randrange(8)
        self._durable[file] = bytes(content)
        return file

    def _check_device(self, name: str) -> None:
        if self.failing:
            raise DiskError(f"{name}: input/output error of the simulated device")

    def copied(self) -> dict[str, bytes]:
        return dict(self._durable)

    def restore(self, copy: dict[str, bytes]) -> None:
        self._durable.clear()
        self._durable.update(copy)
        self._written.clear()

    def crash(self) -> bool:
        """Crash the host, which keeps or loses each write under way; return whether one is lost."""
        lost = False
        for name, written in sorted(self._written.items()):
            if self._durable.get(name) == written:
                continue
            if self._rng.random() < 1 / 2:
                self._durable[name] = written
            else:
                lost = True
        self._written.clear()
        self._working = False
        return lost
