"""The interface of links, listeners and networks, independent of the transport.

A link is one session: it delivers envelopes in order until it is lost, and is never reopened.
Reconnecting makes another link, on which both sides announce their state anew. A link has two
lanes, so that a heartbeat never queues behind a fragment. Order holds within a lane; there is no
order between the lanes.

No call here waits for a slow peer. A full bulk queue skips a new envelope, because the peer gets a
later full value instead. A bulk envelope with a topic is always taken, since at most one of each
topic waits. A full control queue means that the peer does not read at all, so the link closes.
"""

from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from messaging.actors.mailbox import Mailbox
from messaging.envelope import Envelope
from messaging.errors import LinkClosed, MailboxClosed


class Lane(StrEnum):
    """Which of a link's two queues an envelope takes."""

    CONTROL = "control"
    BULK = "bulk"


class Link(Protocol):
    """One end of a session with a peer."""

    @property
    def local(self) -> str:
        """Name of this end."""

    @property
    def remote(self) -> str:
        """Name of the other end, as it gave it or as it was dialled."""

    @property
    def host(self) -> str | None:
        """Address from which the other end dialled this one; None if it did not, or has none."""

    @property
    def holder(self) -> object | None:
        """Who holds the token that the other end has shown; None if it is one that all share."""

    @property
    def closed(self) -> bool:
        """Whether the session is over; envelopes that arrived before can still be received."""

    @property
    def close_reason(self) -> str | None:
        """Why the session is over; None while it is not."""

    @property
    def bytes_sent(self) -> int:
        """Bytes that this end has written to its sockets; inside one process, an estimate."""

    @property
    def bytes_received(self) -> int:
        """Bytes received from the other end, counted in the same way."""

    def send(self, envelope: Envelope, lane: Lane = Lane.CONTROL, topic: str | None = None) -> bool:
        """Queue an envelope without waiting; one with a payload must take the bulk lane.

        It replaces a waiting bulk envelope of the same topic whose sending has not begun: a newer
        value supersedes it. Links inside one process may send both. False if it was not taken: the
        link is closed, or the bulk queue is full. True does not guarantee delivery.
        """

    def holds(self, topic: str) -> bool:
        """Whether a bulk envelope of this topic is queued, or not yet sent completely."""

    def withdraw(self, topic: str) -> bool:
        """Discard a bulk envelope of this topic whose sending has not begun, if there is one.

        It will never arrive if this returns True.
        """

    async def receive(self) -> Envelope:
        """Wait for the next envelope; control has priority over bulk.

        Raises `LinkClosed` once the session is over and all that arrived has been received.
        """

    def admit(self) -> None:
        """Accept bulk from now on, because the peer has proven who it is.

        Call it once for each session that a listener with guests accepted; see `Network.listen`.
        """

    def close(self, reason: str) -> None:
        """End the session, and discard unread envelopes. Only the first call counts."""


class Listener(Protocol):
    """An address at which this process accepts sessions."""

    @property
    def address(self) -> str:
        """The address that a peer must dial."""

    async def accept(self) -> Link:
        """Wait for the next session that a peer opened; raise `LinkClosed` once it is closed."""

    def close(self) -> None:
        """Stop listening; sessions already accepted stay open."""


class Network(Protocol):
    """A transport on which sessions are opened and accepted."""

    async def dial(self, address: str, *, local: str) -> Link:
        """Open a session with whoever listens at `address`, under the name `local`.

        Raises `DialFailed` if nobody listens there, or no answer came in time.
        """

    def listen(self, address: str, *, guests: bool = False) -> Listener:
        """Let others dial `address`; raise `LocalFault` if it is taken.

        Peers are `guests` until `Link.admit` is called: across hosts, sessions of guests may be
        evicted in favour of others, and no bulk is read from them.
        """


L = TypeVar("L", bound=Link)


class BacklogListener(Generic[L]):
    """An address with a bounded queue of new sessions; see `Listener`."""

    def __init__(self, address: str, capacity: int) -> None:
        self.address = address
        self._backlog: Mailbox[L] = Mailbox(capacity)

    async def accept(self) -> L:
        try:
            return await self._backlog.get()
        except MailboxClosed as error:
            raise LinkClosed(f"nobody listens at {self.address!r} any more") from error

    def close(self) -> None:
        """Stop listening, and close the sessions that wait to be accepted."""
        self._backlog.close()
        for link in self._backlog.clear():
            link.close("not accepted")

    @property
    def room(self) -> bool:
        """Whether the queue can take another session."""
        return len(self._backlog) < self._backlog.capacity

    def offer(self, link: L) -> bool:
        """Queue a session for `accept`; return False if the queue is full or closed."""
        return self._backlog.put_nowait(link)
