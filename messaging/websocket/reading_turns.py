"""Whose message is read next, when many come at once: no session holds up the loop, nor the others.

To read a document of many small values takes milliseconds, during which nobody else has the loop.
So all links of a process share what may be read between two turns of the loop. Whoever asks waits
in one of two rows, and each link asks for one message at a time: so every session has as much as
every other one. Those that were admitted go first, and the others have little beside them.
"""

import asyncio
from collections import deque

BYTES_AT_ONCE = 1 << 13
"""Of messages, in one turn of the loop: a few milliseconds if every byte is a value."""

GUESTS_BYTES_AT_ONCE = 1 << 11
"""Of messages of those who were not admitted, beside that: one long message, or some short ones."""

MESSAGE_BYTES = 64
"""What each message costs besides its bytes."""


class ReadingTurns:
    """What the links of one process may read in this turn of the loop.

    Args:
        at_once: bytes of one turn; a message that is longer has a turn of its own.
    """

    def __init__(self, at_once: int = BYTES_AT_ONCE) -> None:
        """Nothing was read."""
        self._at_once = at_once
        self._left = at_once
        self._members: deque[tuple[asyncio.Future[None], int]] = deque()
        self._guests: deque[tuple[asyncio.Future[None], int]] = deque()
        self._renewing = False

    async def wait(self, size_bytes: int, *, member: bool) -> None:
        """Wait until a message may be read.

        Args:
            size_bytes: of the message.
            member: whether its sender was admitted.
        """
        cost = size_bytes + MESSAGE_BYTES
        self._renew_later()
        if self._left > 0 and not self._members and (member or not self._guests):
            self._left -= cost if member else self._at_once
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._members if member else self._guests).append((turn, cost))
        await turn

    def _renew_later(self) -> None:
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Another turn of the loop has begun."""
        self._renewing = False
        self._left = self._at_once
        while self._left > 0 and self._members:
            self._left -= self._give(self._members)
        allowed = GUESTS_BYTES_AT_ONCE
        while allowed > 0 and self._guests:
            allowed -= self._give(self._guests)
        if self._members or self._guests:
            self._renew_later()

    @staticmethod
    def _give(row: deque[tuple[asyncio.Future[None], int]]) -> int:
        """Let the first of a row read; returns what that costs."""
        turn, cost = row.popleft()
        if turn.done():  # its link has ended meanwhile
            return 0
        turn.set_result(None)
        return cost
