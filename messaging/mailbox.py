"""A bounded queue for one reader, with an explicit rule for when it is full."""

import asyncio
from collections import deque
from enum import StrEnum
from typing import Generic, TypeVar

from messaging.errors import LocalFault, MailboxClosed

T = TypeVar("T")


class Overflow(StrEnum):
    """What a full mailbox does with one more message."""

    REFUSE = "refuse"
    """Turns it away and tells the writer so."""
    DROP_OLDEST = "drop_oldest"
    """Takes it and forgets the message that has waited longest: for values that supersede."""
    DROP_NEWEST = "drop_newest"
    """Forgets it and counts it, and tells the writer that all is well: for mere news."""


class Mailbox(Generic[T]):
    """Messages in the order of their arrival, never more than `capacity` of them.

    Any number of writers, exactly one reader, all on the loop's thread.

    Attributes:
        capacity: The bound.
        overflow: The rule for a full mailbox.
        high_water: The most messages that have ever waited at once (invariant I7).
        dropped: How many messages were turned away or forgotten.
    """

    __slots__ = ("_closed", "_items", "_waiter", "capacity", "dropped", "high_water", "overflow")

    def __init__(self, capacity: int, overflow: Overflow = Overflow.REFUSE) -> None:
        """Make an empty, open mailbox.

        Args:
            capacity: The most messages that may wait; at least 1.
            overflow: What to do with one more.

        Raises:
            LocalFault: The capacity is not positive.
        """
        if capacity < 1:
            raise LocalFault(f"a mailbox needs a capacity of at least 1, not {capacity}")
        self.capacity = capacity
        self.overflow = overflow
        self.high_water = 0
        self.dropped = 0
        self._items: deque[T] = deque()
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
            False if the mailbox is closed, or full under `Overflow.REFUSE`. True otherwise.
        """
        if self._closed:
            return False
        items = self._items
        if len(items) >= self.capacity:
            self.dropped += 1
            if self.overflow is not Overflow.DROP_OLDEST:
                return self.overflow is Overflow.DROP_NEWEST
            items.popleft()
        items.append(message)
        self.high_water = max(self.high_water, len(items))
        if self._waiter is not None:
            self._wake()
        return True

    def get_nowait(self) -> T | None:
        """Return the oldest message, or None if none waits."""
        return self._items.popleft() if self._items else None

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
        return self._items.popleft()

    def close(self) -> None:
        """Take no further messages. Those that wait can still be read."""
        self._closed = True
        self._wake()

    def clear(self) -> list[T]:
        """Remove every waiting message and return them, oldest first."""
        items = list(self._items)
        self._items.clear()
        return items

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
