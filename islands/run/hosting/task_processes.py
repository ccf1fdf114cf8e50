"""A launcher that runs actors as tasks of this process, and starts and kills them like processes.

Killing an actor takes away its tasks, its links and its threads, and calls none of its handlers.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from islands.actors.ports import KILLED, ProcessEnd, ended_by


class Process(Protocol):
    """An actor that runs as if it were a process."""

    async def run(self) -> None:
        """Run until the actor ends by itself."""

    def leave(self, reason: str) -> None:
        """Begin an orderly shutdown."""

    async def kill(self) -> None:
        """Free what the actor holds, without notifying any peer."""


@dataclass(slots=True)
class _Entry:
    process: Process
    task: asyncio.Task[Any]


class ProcessTable:
    """The actors that run now, by the names of their processes.

    `make` builds the actor of a name at each start; `ended` hears how a process ended, whether by
    itself or killed.
    """

    def __init__(
        self,
        make: Callable[[str], Process],
        ended: Callable[[str, ProcessEnd], None],
    ) -> None:
        self._make = make
        self._ended = ended
        self._entries: dict[str, _Entry] = {}
        self._last: dict[str, Process] = {}
        self._closed = False
        self._freeing: dict[asyncio.Task[None], None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def names(self) -> list[str]:
        return list(self._entries)

    def get(self, name: str) -> Process | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.process

    def last(self, name: str) -> Process | None:
        return self._last.get(name)

    def start(self, name: str) -> None:
        if self._closed or name in self._entries:
            return
        process = self._last[name] = self._make(name)
        task = asyncio.get_running_loop().create_task(process.run(), name=name)
        self._entries[name] = _Entry(process, task)
        task.add_done_callback(lambda done: self._done(name, done))

    def _done(self, name: str, task: asyncio.Task[Any]) -> None:
        entry = self._entries.get(name)
        if entry is None or entry.task is not task:
            return
        del self._entries[name]
        self._ended(name, ended_by(None if task.cancelled() else task.exception()))

    def kill(self, name: str) -> None:
        """Kill a process at once; its name can be started again when this returns."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            entry.task.cancel()
            loop = asyncio.get_running_loop()
            freeing = loop.create_task(self._free(name, entry), name=f"kill-{name}")
            self._freeing[freeing] = None
            freeing.add_done_callback(lambda done: self._freeing.pop(done, None))

    async def killed(self, name: str) -> bool:
        """Kill a process, and wait until all that it held is freed; return whether it ran."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            entry.task.cancel()
            await self._free(name, entry)
        return entry is not None

    def stop(self, name: str, grace_s: float) -> None:
        entry = self._entries.get(name)
        if entry is None:
            return
        entry.process.leave("it is asked to end")
        timer = asyncio.get_running_loop().call_later(grace_s, self.kill, name)
        entry.task.add_done_callback(lambda _: timer.cancel())

    def adopt(self) -> list[str]:
        return []

    async def _free(self, name: str, entry: _Entry) -> None:
        await entry.process.kill()
        self._ended(name, KILLED)

    def close(self) -> None:
        self._closed = True
        for name in self.names():
            self.kill(name)

    async def wait_freed(self) -> None:
        """Wait until all killed processes have freed what they held."""
        for freeing in list(self._freeing):
            await freeing
