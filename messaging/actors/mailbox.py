"""A bounded queue for one reader; it refuses a message for which it has no room.

Writers that can wait, such as readers of links, first wait for room, which they get in first-come,
first-served order: this backpressure slows many peers down to what the reader handles. A granted
slot belongs to its writer. So no writer waits for more than the messages that were queued before
it and one of each writer ahead of it, however much others send. Writers that cannot wait, such as
timers, put their message at once, up to the capacity.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from messaging.errors import LocalFault, MailboxClosed

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Messages in the order of their arrival, never more than `capacity` of them.

    It serves any number of writers and exactly one reader, all on the loop's thread. `put_nowait`
    refuses a message at the capacity, and `wait_room` blocks its caller at `room`, by default the
    capacity. `high_water` is the most that have ever waited at once (invariant I7).
    """

    def __init__(self, capacity: int, *, room: int | None = None) -> None:
        self.capacity = capacity
        self.room = capacity if room is None else room
        self.high_water = 0
        self._items: deque[T] = deque()
        self._turns: deque[asyncio.Future[None]] = deque()
        self._given = 0  # slots granted to writers that were woken and have not resumed yet
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        """Whether the mailbox takes no further messages; those that wait can still be read."""
        return self._closed

    def put_nowait(self, message: T) -> bool:
        """Add a message; return False, without adding it, if the mailbox is closed or full."""
        items = self._items
        if self._closed or len(items) >= self.capacity:
            return False
        items.append(message)
        self.high_water = max(self.high_water, len(items))
        if self._waiter is not None:
            self._wake()
        return True

    async def wait_room(self) -> None:
        """Wait for room, behind writers that asked earlier; return at once if closed.

        The caller must put its message before it awaits anything else; otherwise its slot is
        granted to the next writer.
        """
        if self._closed or (not self._turns and self._has_room()):
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot was granted to us, and we do not use it
                self._given -= 1
                self._give_turns()
            raise
        self._given -= 1
        if self._turns:
            loop.call_soon(self._give_turns)

    async def get(self) -> T:
        """Wait for a message and return the oldest one; cancelling this loses no message."""
        while not self._items:
            if self._closed:
                raise MailboxClosed("the mailbox is closed and empty")
            if self._waiter is not None:
                raise LocalFault("a mailbox has one reader, and it waits already")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._items.popleft()
        if self._turns:
            self._give_turns()
        return message

    def close(self) -> None:
        self._closed = True
        self._wake()
        self._give_turns()

    def clear(self) -> list[T]:
        """Remove every waiting message and return them, oldest first."""
        items = list(self._items)
        self._items.clear()
        self._give_turns()
        return items

    def _has_room(self) -> bool:
        return len(self._items) + self._given < self.room

    def _give_turns(self) -> None:
        """Resume as many writers as there are slots; resume all if the mailbox is closed."""
        while self._turns and (self._closed or self._has_room()):
            turn = self._turns.popleft()
            if not turn.done():
                self._given += 1
                turn.set_result(None)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
