"""What a link is, whatever carries it.

A link is a session: envelopes in order, from its opening to its loss, and never again after that.
Reconnecting makes another link, on which both sides say anew what they hold. Two lanes run beside
each other, so that a heartbeat never queues behind a fragment. Order holds within a lane, between
the lanes there is none.

Nothing here waits for a slow peer. A full bulk queue skips what is offered, for the peer gets a
later full value instead; what has a topic is taken at any time, since at most one of each waits. A
full control queue means that the peer does not read at all, and the link closes.
"""

from enum import StrEnum
from typing import Protocol

from messaging.envelope import Envelope


class Lane(StrEnum):
    """Which of a link's two queues an envelope takes."""

    CONTROL = "control"
    BULK = "bulk"


class Link(Protocol):
    """One end of a session with a peer."""

    @property
    def local(self) -> str:
        """Name of this end."""
        ...

    @property
    def remote(self) -> str:
        """Name of the other end, as it gave it or as it was dialled."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the session is over; what has arrived before can still be received."""
        ...

    @property
    def close_reason(self) -> str | None:
        """Why the session is over; None while it is not."""
        ...

    @property
    def bytes_sent(self) -> int:
        """Bytes that this end has given to its sockets; inside one process, what they would be."""
        ...

    @property
    def bytes_received(self) -> int:
        """Bytes that have come from the other end, counted likewise."""
        ...

    def send(self, envelope: Envelope, lane: Lane = Lane.CONTROL, topic: str | None = None) -> bool:
        """Offer an envelope; never waits.

        Args:
            envelope: What to send.
            lane: Which queue it takes; bulk, if it has a payload.
            topic: It replaces a bulk envelope of the same topic that waits and has not begun to
                be sent: a newer value supersedes it. Links inside one process may send both.

        Returns:
            False if it was not taken: the link is closed, or the bulk queue is full. True does
            not say that it will arrive.
        """
        ...

    def holds(self, topic: str) -> bool:
        """Whether a bulk envelope of this topic waits here, or has not been sent to its end."""
        ...

    async def receive(self) -> Envelope:
        """Wait for the next envelope; control goes before bulk.

        Raises:
            LinkClosed: The session is over and everything that arrived has been received.
        """
        ...

    def admit(self) -> None:
        """Take in bulk from now on: the peer has shown who it is.

        Needed once for each session that a listener with guests accepted; see `Network.listen`.
        """
        ...

    def close(self, reason: str) -> None:
        """End the session; what waits here unread is forgotten. Only the first call counts."""
        ...


class Listener(Protocol):
    """Where others can dial."""

    @property
    def address(self) -> str:
        """The address to dial."""
        ...

    async def accept(self) -> Link:
        """Wait for the next session that a peer opened.

        Raises:
            LinkClosed: The listener is closed.
        """
        ...

    def close(self) -> None:
        """Accept nobody any more; sessions already accepted stay."""
        ...


class Network(Protocol):
    """A way to open sessions."""

    async def dial(self, address: str, *, local: str) -> Link:
        """Open a session with whoever listens at `address`, under the name `local`.

        Raises:
            DialFailed: Nobody listens there, or no answer came in time.
        """
        ...

    def listen(self, address: str, *, guests: bool = False) -> Listener:
        """Let others dial `address`.

        Args:
            address: What is dialled.
            guests: Whether peers are guests until `Link.admit` is called: across hosts, sessions
                of guests give way to others, and no bulk is read from them.

        Raises:
            LocalFault: The address is taken.
        """
        ...
