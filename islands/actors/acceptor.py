"""Where others dial in: accepts links, numbers them, reads each of them to its end.

A connection's number is never given again, so a late word about an old link cannot be taken for
one about its successor.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.links.link import Link, Listener

READ_AT_ONCE = 16
"""Envelopes of one link before others have their turn."""


class LinkAcceptor:
    """The links that others opened, by connection.

    Args:
        listener: where they dial.
        scope: owner of the readers.
        room: waits until there is room for one more envelope: what does not fit waits in its link,
            whose own bounds slow its peer down.
        receive: called with every envelope, in the order of its link.
        lost: called once for every link that has ended.
    """

    def __init__(
        self,
        listener: Listener,
        scope: Scope,
        *,
        room: Callable[[], Awaitable[None]],
        receive: Callable[[int, Envelope], None],
        lost: Callable[[int], None],
    ) -> None:
        """Accept from now on."""
        self._listener = listener
        self._scope = scope
        self._room = room
        self._receive = receive
        self._lost = lost
        self._links: dict[int, Link] = {}
        self._connections = 0
        scope.spawn(self._accept(), "accept")

    def link(self, connection: int) -> Link | None:
        """The link of a connection, while it is open."""
        return self._links.get(connection)

    def drop(self, connection: int, reason: str) -> None:
        """Close one link, of which nothing is received any more; does nothing if it is gone."""
        link = self._links.pop(connection, None)
        if link is not None:
            link.close(reason)

    def close(self, reason: str) -> None:
        """Accept nobody any more, and close every link."""
        self._listener.close()
        for connection in sorted(self._links):
            self.drop(connection, reason)

    async def _accept(self) -> None:
        while True:  # until the listener closes
            try:
                link = await self._listener.accept()
            except LinkClosed:
                return
            self._connections += 1
            self._links[self._connections] = link
            self._scope.spawn(self._read(self._connections, link), f"link-{self._connections}")

    async def _read(self, connection: int, link: Link) -> None:
        try:
            for number in count(1):  # until the link is lost
                envelope = await link.receive()
                await self._room()
                if connection in self._links:  # not dropped while there was no room
                    self._receive(connection, envelope)
                if number % READ_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except LinkClosed:
            pass
        finally:
            self._links.pop(connection, None)
            self._lost(connection)
