"""What the parts of the syncer's actor that send and take shares use of it."""

from typing import Protocol

from islands.protocol.syncer.state import SyncerState
from islands.protocol.tape.entry import Entry
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
