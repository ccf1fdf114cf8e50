"""Fair scheduling of reads: no session blocks the event loop or starves the other sessions.

Decoding a document of many small values takes milliseconds, during which nothing else can run. So
all links of a process share a budget of bytes for each iteration of the loop. A link that must wait
joins one of two queues, and each link asks for one message at a time: so all sessions get as
much. Links of admitted peers go first; the others (guests) have a small budget beside them.
"""

import asyncio
from collections import deque

BYTES_AT_ONCE = 1 << 13
"""Budget for one iteration of the loop: a few milliseconds if every byte is a value."""

GUESTS_BYTES_AT_ONCE = 1 << 11
"""Extra budget for peers that were not admitted: one long message, or some short ones."""

MESSAGE_BYTES = 64
"""Cost of each message in addition to its bytes."""


class ReadScheduler:
    """The reading budget that the links of one process share, in bytes per iteration of the loop.

    A longer message takes an iteration of its own.
    """

    def __init__(self, at_once: int = BYTES_AT_ONCE) -> None:
        self._at_once = at_once
        self._left = at_once
        self._members: deque[tuple[asyncio.Future[None], int]] = deque()
        self._guests: deque[tuple[asyncio.Future[None], int]] = deque()
        self._renewing = False

    async def wait(self, size_bytes: int, *, member: bool) -> None:
        """Wait until a message may be processed."""
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
        """Renew the budget at the next iteration of the loop, and serve both queues."""
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
        """Let the first link of a queue read; return the cost of its message."""
        turn, cost = row.popleft()
        if turn.done():  # its link has ended meanwhile
            return 0
        turn.set_result(None)
        return cost
