"""A disk in memory that does what disks do when a host dies: it loses or tears what was not synced.

A sync takes time. `sync` only asks for it; it is complete when the worker that asked says so by
`settle`. A crash before that may keep, lose or tear the write, drawn from the seed.
"""

import random
from collections.abc import Sequence

from islands.errors import JournalError


class SimulatedDisk:
    """Named files of one host; `rng` decides what a crash leaves behind."""

    def __init__(self, rng: random.Random) -> None:
        """An empty disk."""
        self._rng = rng
        self._durable: dict[str, bytes] = {}
        self._cached: dict[str, bytes] = {}
        self._syncing: dict[str, bytes] = {}
        self.full = False

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Replace a file's content in the cache."""
        if self.full:
            raise JournalError(f"{name} cannot be written: no space left on the simulated disk")
        self._cached[name] = b"".join(bytes(part) for part in parts)

    def sync(self, name: str) -> None:
        """Ask for durability; `settle` grants it."""
        self._syncing[name] = self._cached[name]

    def settle(self) -> None:
        """The device has written everything it was asked to."""
        self._durable.update(self._syncing)
        self._syncing.clear()

    def read(self, name: str) -> bytes | None:
        """A file's content as the host sees it."""
        return self._cached.get(name, self._durable.get(name))

    def crash(self) -> None:
        """The host died: each write that is not durable is kept, lost or torn."""
        for name in sorted(self._cached):
            content = self._cached[name]
            if self._durable.get(name) == content:
                continue
            outcome = self._rng.random()
            if outcome < 1 / 3:
                self._durable[name] = content
            elif outcome < 2 / 3 and content:
                self._durable[name] = content[: self._rng.randrange(len(content))]
        self._cached.clear()
        self._syncing.clear()
