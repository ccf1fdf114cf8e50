"""A worker whose pieces of work take virtual time."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class InlineWorker:
    """A worker on a virtual clock: pieces begin in order, run at once, and end after `cost_s`.

    `begin` is called before each piece, and `complete` before its `done`: in between, the syncs of
    a simulated disk last.
    """

    def __init__(
        self,
        cost_s: Callable[[], float],
        begin: Callable[[], object] = lambda: None,
        complete: Callable[[], object] = lambda: None,
        *,
        places: int = 1,
    ) -> None:
        self._places = places
        self._cost_s = cost_s
        self._begin = begin
        self._complete = complete
        self._queue: deque[Callable[[], None]] = deque()
        self._begun: dict[int, asyncio.TimerHandle | None] = {}
        self._pieces = 0
        self._closed = False

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        self._pieces += 1
        number = self._pieces

        def run() -> None:
            self._begun[number] = None
            self._begin()
            result = work()
            cost_s = self._cost_s()
            loop = asyncio.get_running_loop()
            self._begun[number] = loop.call_later(cost_s, finish, result)

        def finish(result: T) -> None:
            del self._begun[number]
            self._complete()
            done(result)
            self._next()

        if not self._closed:
            self._queue.append(run)
            self._next()

    def _next(self) -> None:
        while self._queue and len(self._begun) < self._places and not self._closed:
            self._queue.popleft()()

    def close(self) -> None:
        """Accept no more work, and abandon what is not complete, as when the host dies."""
        self._closed = True
        for timer in self._begun.values():
            if timer is not None:
                timer.cancel()
