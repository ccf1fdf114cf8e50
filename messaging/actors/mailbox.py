"""A bounded queue for one reader, which refuses what it has no room for.

Writers that can wait, such as readers of links, ask for room first and get it in the order in which
they asked: that is how a crowd of peers is slowed down to what the reader handles. Who asks while
others wait goes behind them, and a place that was given belongs to its writer: so nobody waits for
more than the messages that were there and one of each writer before it, however much others send.
Writers that cannot wait, such as timers, put their message at once, up to the capacity.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from messaging.errors import LocalFault, MailboxClosed

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Messages in the order of their arrival, never more than `capacity` of them.

    Any number of writers, exactly one reader, all on the loop's thread.

    Attributes:
        capacity: The bound.
        room: How many messages may wait before writers that can wait do so.
        high_water: The most messages that have ever waited at once (invariant I7).
        dropped: How many messages were refused.
    """

    __slots__ = (
        "_closed",
        "_given",
        "_items",
        "_turns",
        "_waiter",
        "capacity",
        "dropped",
        "high_water",
        "room",
    )

    def __init__(self, capacity: int, *, room: int | None = None) -> None:
        """Make an empty, open mailbox.

        Args:
            capacity: The most messages that may wait; at least 1.
            room: See the class; by default the capacity.

        Raises:
            LocalFault: The capacity is not positive, or the room is not between 1 and it.
        """
        if capacity < 1:
            raise LocalFault(f"a mailbox needs a capacity of at least 1, not {capacity}")
        if room is not None and not 1 <= room <= capacity:
            raise LocalFault(f"a mailbox of {capacity} cannot have a room of {room}")
        self.capacity = capacity
        self.room = capacity if room is None else room
        self.high_water = 0
        self.dropped = 0
        self._items: deque[T] = deque()
        self._turns: deque[asyncio.Future[None]] = deque()
        self._given = 0  # places of writers that were woken and have not gone on yet
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        """Return how many messages wait."""
        return len(self._items)

    @property
    def closed(self) -> bool:
        """Whether the mailbox takes no further messages; those that wait can still be read."""
        return self._closed

    def put_nowait(self, message: T) -> bool:
        """Add a message.

        Returns:
            False if the mailbox is closed or full: the message is not there.
        """
        if self._closed:
            return False
        items = self._items
        if len(items) >= self.capacity:
            self.dropped += 1
            return False
        items.append(message)
        self.high_water = max(self.high_water, len(items))
        if self._waiter is not None:
            self._wake()
        return True

    async def wait_room(self) -> None:
        """Wait until there is room, behind those who asked before; a closed mailbox has room.

        The room is there until the caller waits for something else. Then it is given to the next
        one if the caller has put nothing there.
        """
        if self._closed or (not self._turns and self._has_room()):
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was ours, and we do not use it
                self._given -= 1
                self._give_turns()
            raise
        self._given -= 1
        if self._turns:
            loop.call_soon(self._give_turns)

    async def get(self) -> T:
        """Wait for a message and return the oldest one.

        Being cancelled loses no message.

        Raises:
            MailboxClosed: The mailbox is closed and has been read empty.
            LocalFault: Another reader waits already.
        """
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
        return self._take()

    def close(self) -> None:
        """Take no further messages. Those that wait can still be read."""
        self._closed = True
        self._wake()
        self._give_turns()

    def clear(self) -> list[T]:
        """Remove every waiting message and return them, oldest first."""
        items = list(self._items)
        self._items.clear()
        self._give_turns()
        return items

    def _take(self) -> T:
        message = self._items.popleft()
        if self._turns:
            self._give_turns()
        return message

    def _has_room(self) -> bool:
        return len(self._items) + self._given < self.room

    def _give_turns(self) -> None:
        """Let as many writers go on as there are places; of a closed mailbox all."""
        while self._turns and (self._closed or self._has_room()):
            turn = self._turns.popleft()
            if not turn.done():
                self._given += 1
                turn.set_result(None)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
