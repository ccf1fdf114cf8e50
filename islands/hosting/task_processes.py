"""Actors as processes of one Python process: started, killed, and seen to end.

A process table is what a launcher has when everything runs on one loop. Killing an actor takes
away its tasks, its links and its threads, and calls none of its handlers, as a SIGKILL would.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from islands.actors.ports import KILLED, ProcessEnd, ended_by
from islands.hosting.delayed_starts import DelayedStarts


class Process(Protocol):
    """An actor that runs as if it were a process."""

    async def run(self) -> None:
        """Live until it ends by itself."""

    async def kill(self) -> None:
        """Free what it holds, without a word to anybody."""


@dataclass(slots=True)
class _Entry:
    process: Process
    task: asyncio.Task[Any]


class ProcessTable:
    """The processes that run now, by name.

    Args:
        make: builds the process of a name; called at each start.
        ended: told how a process ended, by itself or killed.
    """

    def __init__(
        self,
        make: Callable[[str], Process],
        ended: Callable[[str, ProcessEnd], None],
    ) -> None:
        """No process runs."""
        self._make = make
        self._ended = ended
        self._entries: dict[str, _Entry] = {}
        self._starts = DelayedStarts(self._start_now)
        self._last: dict[str, Process] = {}
        self._freeing: dict[asyncio.Task[None], None] = {}

    def __contains__(self, name: str) -> bool:
        """Whether a process of this name runs."""
        return name in self._entries

    def names(self) -> list[str]:
        """The processes that run, in the order of their start."""
        return list(self._entries)

    def awaited(self) -> list[str]:
        """The processes that run, or are about to be started."""
        return [*self.names(), *self._starts.names()]

    def get(self, name: str) -> Process | None:
        """The process of a name, if it runs."""
        entry = self._entries.get(name)
        return None if entry is None else entry.process

    def last(self, name: str) -> Process | None:
        """The process that runs under a name, or the one that did last."""
        return self._last.get(name)

    def start(self, name: str, delay_s: float = 0.0) -> None:
        """Start a process, after a delay; does nothing if it runs or will."""
        if name not in self._entries:
            self._starts.start(name, delay_s)

    def hold(self, name: str, away_s: float) -> None:
        """Do not start a process before so many seconds have passed, whoever asks for it."""
        self._starts.hold(name, away_s)

    def _start_now(self, name: str) -> None:
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

    async def kill(self, name: str) -> None:
        """Kill a process at once; does nothing if it does not run."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            entry.task.cancel()
            await self._free(name, entry)

    def kill_soon(self, name: str) -> None:
        """Kill a process from code that cannot wait; its name is free at once."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            entry.task.cancel()
            loop = asyncio.get_running_loop()
            freeing = loop.create_task(self._free(name, entry), name=f"kill-{name}")
            self._freeing[freeing] = None
            freeing.add_done_callback(lambda done: self._freeing.pop(done, None))

    async def _free(self, name: str, entry: _Entry) -> None:
        await entry.process.kill()
        self._ended(name, KILLED)

    async def wait_ended(self, timeout_s: float) -> None:
        """Wait until every process has ended by itself, at most so long; `ended` is told how."""
        try:
            async with asyncio.timeout(timeout_s):
                for name in self.names():
                    entry = self._entries.get(name)
                    if entry is not None:
                        await asyncio.gather(asyncio.shield(entry.task), return_exceptions=True)
        except TimeoutError:
            return

    async def close(self) -> None:
        """Kill what runs and start nothing any more."""
        self._starts.close()
        for name in self.names():
            await self.kill(name)
        for freeing in list(self._freeing):
            await freeing
