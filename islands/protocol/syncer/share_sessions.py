"""Sessions of the other hosts of an island, which carry shares of values, and nothing else.

Such a session is tied to a member that is linked: by name, incarnation and the host's rank. It
ends when that incarnation does, and a newer one of the same host replaces it. What comes over it
concerns that member alone, and only pulls that it was sent. It is sent shares of published values
if its member wants that, and tells which elements each of its hosts has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from islands.protocol.errors import MalformedError
from islands.protocol.identities import Incarnation, LearnerName, Ticket
from islands.protocol.messages.membership import Refused
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.messages.shares import BUFFERS_MAX, ShareHello, UpdatesInShares
from islands.protocol.ranges import Ranges, size_of
from islands.protocol.syncer.assembly import check_ranges
from islands.protocol.syncer.core import Core

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


def parted(wish: UpdatesInShares, fragments: Sequence[int]) -> tuple[tuple[Ranges, ...], ...]:
    """Return the ranges of each host by fragment, as a member wants its values.

    Args:
        wish: what it says.
        fragments: sizes of the fragments.

    Raises:
        MalformedError: its hosts have not all elements once; the text says where.
    """
    hosts = len(wish.shares)
    if not 1 < hosts <= HOSTS_MAX or any(len(each) != len(fragments) for each in wish.shares):
        raise MalformedError(f"it tells shares of {hosts} hosts, not of every fragment")
    by_fragment = tuple(zip(*wish.shares, strict=True))
    for fragment, (size, shares) in enumerate(zip(fragments, by_fragment, strict=True)):
        if not shares[0]:
            continue
        ranges = sorted(each for share in shares for each in share)
        try:
            check_ranges(tuple(ranges), size)
            for share in shares:
                check_ranges(share or ((0, size),), size)
        except MalformedError as error:
            raise MalformedError(f"shares of fragment {fragment}: {error}") from error
        if size_of(ranges) != size:
            raise MalformedError(f"shares of fragment {fragment} are not all of it")
        if max(map(len, shares)) > BUFFERS_MAX:
            raise MalformedError(
                f"a share of fragment {fragment} has more than {BUFFERS_MAX} parts"
            )
    return by_fragment


def _linked(core: Core, name: LearnerName, incarnation: Incarnation) -> bool:
    learner = core.learners.get(name)
    linked = learner is not None and learner.connection is not None
    return linked and learner is not None and learner.incarnation == incarnation


@dataclass(slots=True)
class ShareSessions:
    """The open sessions, by connection and by host; and who wants its values in shares.

    `parted` has the ranges of each host, by fragment, for the connection of a member that does.
    """

    hosts: dict[int, ShareHello] = field(default_factory=dict)
    parted: dict[int, tuple[tuple[Ranges, ...], ...]] = field(default_factory=dict)
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
        self.parted.pop(connection, None)
        hello = self.hosts.pop(connection, None)
        if hello is not None and self.newest.get((hello.name, hello.rank)) == connection:
            del self.newest[hello.name, hello.rank]
        return hello

    def receivers(
        self, connection: int, name: LearnerName | None, fragment: int
    ) -> dict[int, Ranges] | None:
        """Return by connection who is sent which part of a value; None if it is sent whole.

        Args:
            connection: that of the member.
            name: its name.
            fragment: index.
        """
        by_fragment = self.parted.get(connection)
        if by_fragment is None or not by_fragment[fragment][0]:
            return None
        found = {connection: by_fragment[fragment][0]}
        for rank, ranges in enumerate(by_fragment[fragment]):
            host = None if name is None else self.newest.get((name, rank))
            if rank == 0 or not ranges:
                continue
            if host is None:
                return None
            found[host] = ranges
        return found if len(found) > 1 else None

    def over(self, core: Core) -> list[int]:
        """Return the connections whose member is none any more."""
        known = core.learners

        def gone(hello: ShareHello) -> bool:
            member = known.get(hello.name)
            return member is None or member.incarnation != hello.incarnation

        return [connection for connection, hello in self.hosts.items() if gone(hello)]
