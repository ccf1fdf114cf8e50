"""Starts of processes that are to come after a while, by name."""

import asyncio
from collections.abc import Callable


class DelayedStarts:
    """What is about to be started.

    Args:
        start: starts a process at once.
    """

    def __init__(self, start: Callable[[str], object]) -> None:
        """Nothing is to be started."""
        self._start = start
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._due_s: dict[str, float] = {}
        self._held_s: dict[str, float] = {}
        self._closed = False

    def __contains__(self, name: str) -> bool:
        """Whether a process of this name is about to be started."""
        return name in self._timers

    def names(self) -> list[str]:
        """What is about to be started, in the order in which that was asked for."""
        return list(self._timers)

    def start(self, name: str, delay_s: float) -> None:
        """Start a process after a delay, or later if it is held; nothing if it is about to be."""
        if not self._closed and name not in self._timers:
            self._due_s[name] = asyncio.get_running_loop().time() + delay_s
            self._schedule(name)

    def hold(self, name: str, away_s: float) -> None:
        """Do not start a process before so many seconds have passed, whoever asks for it.

        The last hold of a name is the one that counts.
        """
        self._held_s[name] = asyncio.get_running_loop().time() + away_s
        if name in self._timers:
            self._timers[name].cancel()
            self._schedule(name)

    def cancel(self, name: str) -> None:
        """Do not start a process that was about to be."""
        due = self._timers.pop(name, None)
        if due is not None:
            due.cancel()

    def close(self) -> None:
        """Start nothing any more."""
        self._closed = True
        for name in self.names():
            self.cancel(name)

    def _schedule(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        at_s = max(self._due_s[name], self._held_s.get(name, 0.0))
        if at_s <= loop.time():
            self._start_now(name)
        else:
            self._timers[name] = loop.call_at(at_s, self._start_now, name)

    def _start_now(self, name: str) -> None:
        self._timers.pop(name, None)
        self._held_s.pop(name, None)
        self._due_s.pop(name, None)
        self._start(name)
