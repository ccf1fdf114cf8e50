"""What a learner asks of the other hosts of its island: that each sends its own share.

A learner on one host has no such hosts, and sends everything itself.
"""

from collections.abc import Callable
from typing import Protocol

from islands.identities import Ticket
from islands.messages.training import Contribution, Hello

SendUp = Callable[[object, memoryview, str], bool]
"""Sends a message with its payload and topic to the syncer; returns whether the link took it."""


class Sharing(Protocol):
    """The other hosts, and their sessions with the syncer."""

    @property
    def bytes_sent(self) -> int:
        """Return what they have sent over their sessions."""

    @property
    def bytes_received(self) -> int:
        """Return what they have received over them."""

    def linked(self, address: str, hello: Hello, send: SendUp) -> None:
        """Have the hosts open sessions of their own, as this learner's is open.

        Args:
            address: that of the syncer.
            hello: what the learner told it, and was welcomed for.
            send: sends over the learner's own link.
        """

    def unlinked(self) -> None:
        """Note that the learner's link is gone, and with it what was on its way."""

    def divide(
        self, message: Contribution, payload: memoryview, snapshot: int
    ) -> tuple[Contribution, Callable[[], memoryview]]:
        """Have the hosts send their shares of a contribution.

        Args:
            message: the contribution.
            payload: all of it.
            snapshot: the number by which the hosts know it.

        Returns:
            The message to send, which tells its own share; and what cuts that share out, which is
            heavy. If no host can send any, both are as if there were none.
        """

    def arrived(self, ticket: Ticket) -> None:
        """Note that all shares of a contribution have arrived."""
