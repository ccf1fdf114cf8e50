"""The acceptor accepts the links that others open, numbers them, and reads each to its end.

A connection's number is never reused. Texts that a role repeats in its answers, on its tape and in
its records are bounded here: a message with a longer one ends its link.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from islands.protocol.messages.membership import TEXTS_MAX
from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.links.link import Link, Listener

READ_AT_ONCE = 16
"""Envelopes read from one link before the readers of other links have their turn."""


def too_long(body: object) -> str | None:
    """Return why a message is not received, since a text in it is too long; None if it is."""
    for field, most in TEXTS_MAX.items():
        text = getattr(body, field, None)
        if isinstance(text, str) and len(text) > most:
            return f"a {field} of {len(text)} characters; at most {most} are allowed"
    return None


class LinkAcceptor:
    """The links that others opened, by connection.

    `room` waits until there is room for one more envelope (backpressure): meanwhile others wait in
    the link, whose own bounds slow its peer down. `receive` gets the number of the connection and
    every envelope, in order, and `lost` the number of every connection that has ended.
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
        self._listener = listener
        self._scope = scope
        self._room = room
        self._receive = receive
        self._lost = lost
        self._links: dict[int, Link] = {}
        self._connections = 0
        scope.spawn(self._accept(), "accept")

    def link(self, connection: int) -> Link | None:
        """The link of a connection; None once it is closed."""
        return self._links.get(connection)

    def drop(self, connection: int, reason: str) -> None:
        """Close a link, and receive nothing more from it; do nothing if it is gone."""
        link = self._links.pop(connection, None)
        if link is not None:
            link.close(reason)

    def close(self, reason: str) -> None:
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
                long = too_long(envelope.body)
                if long is not None:
                    self.drop(connection, long)
                if connection in self._links:  # not dropped, now or while there was no room
                    self._receive(connection, envelope)
                if number % READ_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except LinkClosed:
            pass
        finally:
            self._links.pop(connection, None)
            self._lost(connection)
