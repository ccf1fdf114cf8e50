"""Sessions of the other hosts of an island, which carry shares of what its member contributes.

Such a session is tied to a member that is linked: by name, incarnation and the host's rank. It
ends when that incarnation does, and a newer one of the same host replaces it. What comes over it
concerns that member alone, and only pulls that it was sent.
"""

from dataclasses import dataclass, field

from islands.identities import Incarnation, LearnerName, Ticket
from islands.messages.membership import Refused
from islands.messages.protocol import PROTOCOL
from islands.messages.shares import ShareHello
from islands.syncer.core import Core

HOSTS_MAX = 1024
"""Most hosts of an island that may send shares, so that a member opens no more sessions."""


def refusal(core: Core, hello: ShareHello, *, trusted: bool) -> Refused | None:
    """Return why a session for shares is refused, or None if it is open.

    Args:
        core: the syncer's memory.
        hello: what the host says.
        trusted: whether its credential is one that the supervisor signed.
    """

    def refused(reason: str, *, retry: bool = False) -> Refused:
        return Refused(hello.name, reason, retry)

    if hello.protocol != PROTOCOL:
        return refused(f"protocol {hello.protocol} is not spoken here, but {PROTOCOL}")
    if hello.run != core.settings.run or hello.fingerprint != core.fingerprint:
        return refused(f"it is a host of another run or layout than {core.settings.run!r}")
    if not trusted:
        return refused(f"the credential of {hello.name} is not signed by this run's supervisor")
    if not 1 <= hello.rank < HOSTS_MAX:
        return refused(f"rank {hello.rank} is not from 1 to {HOSTS_MAX - 1}")
    if not _linked(core, hello.name, hello.incarnation):
        return refused(f"{hello.name}/{hello.incarnation} has no link here", retry=True)
    return None


def why_unknown(core: Core, ticket: Ticket) -> str | None:
    """Return why no share for a ticket is taken, None if the ticket was given and not answered."""
    learner = core.learners.get(ticket.name)
    if learner is None or learner.incarnation != ticket.incarnation:
        return f"{ticket.name}/{ticket.incarnation} is no member here"
    if ticket.epoch != core.durable.epoch or ticket.round not in learner.exchange.asked:
        return f"no answer to {ticket} is awaited"
    return None


def _linked(core: Core, name: LearnerName, incarnation: Incarnation) -> bool:
    learner = core.learners.get(name)
    linked = learner is not None and learner.connection is not None
    return linked and learner is not None and learner.incarnation == incarnation


@dataclass(slots=True)
class ShareSessions:
    """The open sessions, by connection and by host."""

    hosts: dict[int, ShareHello] = field(default_factory=dict)
    newest: dict[tuple[LearnerName, int], int] = field(default_factory=dict)

    def open(self, connection: int, hello: ShareHello) -> int | None:
        """Note a session; return the earlier one of the same host, which it replaces."""
        self.close(connection)
        earlier = self.newest.get((hello.name, hello.rank))
        self.hosts[connection] = hello
        self.newest[hello.name, hello.rank] = connection
        return earlier

    def close(self, connection: int) -> ShareHello | None:
        """Note that a session has ended; return whose it was, None if it was none."""
        hello = self.hosts.pop(connection, None)
        if hello is not None and self.newest.get((hello.name, hello.rank)) == connection:
            del self.newest[hello.name, hello.rank]
        return hello

    def over(self, core: Core) -> list[int]:
        """Return the connections whose member is none any more."""
        known = core.learners

        def gone(hello: ShareHello) -> bool:
            member = known.get(hello.name)
            return member is None or member.incarnation != hello.incarnation

        return [connection for connection, hello in self.hosts.items() if gone(hello)]
