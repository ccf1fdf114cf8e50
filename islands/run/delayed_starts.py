"""Starts of processes that are scheduled for later, by name."""

import asyncio
from collections.abc import Callable


class DelayedStarts:
    """The scheduled starts of processes, one timer per name.

    Args:
        start: starts a process at once.
    """

    def __init__(self, start: Callable[[str], object]) -> None:
        """Schedule nothing yet."""
        self._start = start
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._due_s: dict[str, float] = {}
        self._held_s: dict[str, float] = {}
        self._closed = False

    def __contains__(self, name: str) -> bool:
        """Return whether a start of this name is scheduled."""
        return name in self._timers

    def names(self) -> list[str]:
        """Return the names whose start is scheduled, in the order in which it was requested."""
        return list(self._timers)

    def start(self, name: str, delay_s: float) -> None:
        """Start a process after a delay, or later if it is held, unless a start is scheduled."""
        if not self._closed and name not in self._timers:
            self._due_s[name] = asyncio.get_running_loop().time() + delay_s
            self._schedule(name)

    def hold(self, name: str, away_s: float) -> None:
        """Delay any start of a process until `away_s` from now, whoever asks for it.

        A later hold of the same name replaces an earlier one.
        """
        self._held_s[name] = asyncio.get_running_loop().time() + away_s
        if name in self._timers:
            self._timers[name].cancel()
            self._schedule(name)

    def cancel(self, name: str) -> None:
        """Cancel the scheduled start of a process, if there is one."""
        due = self._timers.pop(name, None)
        if due is not None:
            due.cancel()

    def close(self) -> None:
        """Cancel all scheduled starts, and accept no new ones."""
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
