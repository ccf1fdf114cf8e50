"""What a learner asks of the other hosts of its island: that each exchanges its own shares.

A learner on one host has no such hosts, and exchanges everything itself.
"""

from collections.abc import Callable
from typing import Protocol

from islands.actors.published_values import Payload, Taken
from islands.protocol.identities import Ticket
from islands.protocol.messages.training import Contribution, FragmentUpdate, Hello
from islands.protocol.tape.process_entries import UpdateRefused

SendUp = Callable[[object, tuple[memoryview, ...], str | None], bool]
"""Sends a message with its payload and topic to the syncer; returns whether the link took it."""


class Sharing(Protocol):
    """The other hosts, and their sessions with the syncer."""

    @property
    def bytes_sent(self) -> int:
        """Return what they have sent over their sessions."""

    @property
    def bytes_received(self) -> int:
        """Return what they have received over them."""

    def linked(self, address: str, hello: Hello, send: SendUp, *, whole: bool) -> None:
        """Have the hosts open sessions of their own, as this learner's is open.

        Args:
            address: that of the syncer.
            hello: what the learner told it, and was welcomed for.
            send: sends over the learner's own link.
            whole: whether this learner needs published values whole, as increments are added to
                them.
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

    def takes(
        self,
        update: FragmentUpdate,
        payload: Payload,
        *,
        record: Callable[[UpdateRefused], object],
        arrived: Callable[[Taken], object],
    ) -> bool:
        """Take in a share of a published value; return False if the value is none.

        Args:
            update: what was received.
            payload: its buffers.
            record: told why a share was refused.
            arrived: told this host's share, once every host has its own.
        """

    def arrived(self, ticket: Ticket) -> None:
        """Note that all shares of a contribution have arrived."""
