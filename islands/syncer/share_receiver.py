"""The shares of contributions that hosts of an island send, and the sessions over which they come.

`protocol/syncer/shares.py` says who may open one, what may come over it, and how shares become a
contribution. A share that fits no pull is dropped; a link over which one comes that no honest host
sends is closed. Either way the tape tells why, and no memory is taken.
"""

from typing import Protocol

from islands.protocol.credentials import Credentials
from islands.protocol.errors import MalformedError
from islands.protocol.identities import LearnerName, Ticket
from islands.protocol.messages.shares import (
    ContributionShare,
    ShareHello,
    ShareWelcome,
    UpdatesInShares,
)
from islands.protocol.messages.training import ContributionReceived
from islands.protocol.syncer.shares import ShareSessions, parted, refusal, why_unknown
from islands.protocol.syncer.state import SyncerState
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.member_entries import HostLinked, HostUnlinked
from islands.protocol.tape.process_entries import Impostor, ShareDropped
from islands.syncer.inspection_queue import InspectionQueue
from messaging.links.link import Lane, Link


class Links(Protocol):
    """The actor's state, its links and its tape."""

    state: SyncerState

    def link(self, connection: int) -> Link | None:
        """Return the link of a connection; None once it is closed."""

    def drop(self, connection: int, reason: str) -> None:
        """Close the link of a connection."""

    def send(
        self,
        link: Link | None,
        body: object,
        payload: tuple[memoryview, ...] = (),
        lane: Lane = Lane.CONTROL,
        *,
        topic: str | None = None,
    ) -> bool:
        """Send a message, on the bulk lane if it has a payload."""

    def record(self, entry: Entry) -> None:
        """Write an entry to the tape."""


class ShareReceiver:
    """Takes the shares of all islands.

    Args:
        inspections: assemble shares, and measure what is whole.
        credentials: verify that a host belongs to an admitted member.
        links: the syncer's.

    Attributes:
        sessions: The open sessions.
    """

    def __init__(
        self, inspections: InspectionQueue, credentials: Credentials, links: Links
    ) -> None:
        """Know no hosts yet."""
        self.sessions = ShareSessions()
        self._inspections = inspections
        self._credentials = credentials
        self._links = links
        inspections.whole = self._acknowledge_whole

    def connections(self) -> list[int]:
        """Return the open sessions, once those are closed whose member's incarnation has ended."""
        sessions = self.sessions
        for connection in sessions.over(self._links.state.core) if sessions.hosts else []:
            self._links.drop(connection, "the incarnation of its member has ended")
            self._close(connection)
        return list(sessions.hosts)

    def on_hello(self, connection: int, hello: ShareHello) -> None:
        """Open a session, or refuse it in a sentence."""
        links = self._links
        trusted = self._credentials.genuine(hello.name, hello.incarnation, hello.credential)
        refused = refusal(links.state.core, hello, trusted=trusted)
        link = links.link(connection)
        if refused is not None:
            links.record(ShareDropped(hello.name, refused.reason))
            links.send(link, refused)
            links.drop(connection, "dismissed")
            return
        earlier = self.sessions.open(connection, hello)
        if earlier is not None and earlier != connection:
            links.drop(earlier, "replaced by a newer session")
        if link is not None:
            link.admit()
            links.send(link, ShareWelcome(links.state.durable.epoch))
        links.record(HostLinked(hello.name, str(hello.incarnation), hello.rank))

    def on_wish(self, connection: int, wish: UpdatesInShares) -> None:
        """Send a member its values in shares from now on, or whole if it tells none."""
        sizes = self._inspections.sizes
        self.sessions.parted.pop(connection, None)
        if not wish.shares:
            return
        try:
            self.sessions.parted[connection] = parted(wish, sizes)
        except MalformedError as error:
            self._links.record(ShareDropped(wish.name, str(error)))

    def lost(self, connection: int, name: str | None) -> None:
        """Note that a connection is none of a host; and that a member's shares are void.

        `name` is the member whose link has ended, or begins anew.
        """
        self._close(connection)
        if name is not None:
            self._inspections.forget_shares(LearnerName(name))

    def on_share(
        self,
        connection: int,
        name: str | None,
        share: ContributionShare,
        payload: tuple[memoryview, ...],
    ) -> None:
        """Receive a share from its member (the `name` that said hello), or from a host of it."""
        links, ticket = self._links, share.ticket
        host = self.sessions.hosts.get(connection)
        told = name if host is None else host.name
        if told != ticket.name or (host is not None and host.incarnation != ticket.incarnation):
            links.record(Impostor(told, type(share).__name__))
            links.drop(connection, "spoke in another's name")
            return

        def refused(reason: str) -> None:
            links.record(ShareDropped(ticket.name, reason))
            links.drop(connection, f"a share was refused: {reason}")

        unknown = why_unknown(links.state.core, ticket)
        if unknown is None:
            self._inspections.copy_share(share, payload, refused)
        else:
            links.record(ShareDropped(ticket.name, unknown))

    def _close(self, connection: int) -> None:
        hello = self.sessions.close(connection)
        if hello is not None:
            self._links.record(HostUnlinked(hello.name, hello.rank))

    def _acknowledge_whole(self, connection: int, ticket: Ticket) -> None:
        self._links.send(self._links.link(connection), ContributionReceived(ticket))
