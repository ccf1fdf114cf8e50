"""The queue of sessions that wait to be accepted: the base class of all listeners."""

from typing import Generic, TypeVar

from messaging.actors.mailbox import Mailbox
from messaging.errors import LinkClosed, MailboxClosed
from messaging.links.link import Link

L = TypeVar("L", bound=Link)


class BacklogListener(Generic[L]):
    """An address with a bounded queue of new sessions; see `messaging.links.link.Listener`.

    Attributes:
        address: The address that a peer must dial.
    """

    def __init__(self, address: str, capacity: int) -> None:
        self.address = address
        self._backlog: Mailbox[L] = Mailbox(capacity)

    async def accept(self) -> L:
        """Wait for the next session that a peer opened.

        Raises:
            LinkClosed: The listener is closed.
        """
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
