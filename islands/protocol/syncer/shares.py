"""Shares of values: contributions that come in shares, and the sessions over which they come.

**Assembly.** The hosts of an island send each its own share (`messages.shares`); the message of the
learner itself, the *head*, has one, too. They come in any order. A share claims its elements when
it arrives, and is placed once a worker has copied it; the contribution is whole when the head is
here and every element is placed. To the rules of the syncer it arrives in that moment, as one.

What a share may claim is bounded: elements of the fragment that no other share has claimed, of a
few contributions of each learner. Memory is taken for a contribution when its first share is
claimed, and each share is freed when it is placed. What is superseded, or belonged to a link that
is gone, is forgotten.

**Sessions** of the other hosts of an island carry shares of values, and nothing else.

Such a session is tied to a member that is linked: by name, incarnation and the host's rank. It
ends when that incarnation does, and a newer one of the same host replaces it. What comes over it
concerns that member alone, and only pulls that it was sent. It is sent shares of published values
if its member wants that, and tells which elements each of its hosts has.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from islands.protocol.errors import MalformedError
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Ticket
from islands.protocol.messages.membership import Refused
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.messages.shares import (
    BUFFERS_MAX,
    RANGES_MAX,
    ContributionShare,
    ShareHello,
    UpdatesInShares,
)
from islands.protocol.messages.training import Contribution
from islands.protocol.ranges import Ranges, size_of
from islands.protocol.syncer.core import Core

ASSEMBLIES_MAX = 4
"""Contributions of one learner that may be incomplete: answers to two pulls, each twice."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Which contribution a share belongs to; each answer to a ticket has its own number."""

    ticket: Ticket
    number: int
    fragment: FragmentIndex
    precision: str

    @classmethod
    def of(cls, message: Contribution | ContributionShare) -> "Answer":
        """The contribution that a message belongs to."""
        return cls(message.ticket, message.answer, message.fragment, message.precision)


@dataclass(slots=True)
class Assembly:
    """One contribution of so many elements, of which `claimed` are here or being copied.

    `placed` counts those that have been copied to `buffer`, and `head` is the learner's message
    with the connection over which it came.
    """

    size: int
    claimed: list[tuple[int, int]] = field(default_factory=list)
    placed: int = 0
    head: tuple[int, Contribution] | None = None
    buffer: memoryview | None = field(default=None, repr=False)

    def claim(self, ranges: Ranges) -> bool:
        """Claim elements; return False if a share with all of them was claimed before.

        Raises:
            MalformedError: They are no ascending ranges of the value, or some are claimed.
        """
        check_ranges(ranges, self.size)
        held = [self._overlap(*each) for each in ranges]
        if sum(held) == size_of(ranges):
            return False
        if any(held):
            raise MalformedError("it has elements that another share has, and others")
        if len(self.claimed) + len(ranges) > RANGES_MAX:
            raise MalformedError(f"with it, its contribution has more than {RANGES_MAX} ranges")
        self.claimed = sorted([*self.claimed, *ranges])
        return True

    def give_back(self, ranges: Ranges) -> None:
        """Let others claim elements whose bytes were not what their sender told."""
        self.claimed = [each for each in self.claimed if each not in ranges]

    @property
    def whole(self) -> bool:
        """Whether the head and all elements are here."""
        return self.head is not None and self.placed == self.size

    def _overlap(self, start: int, stop: int) -> int:
        """Return how many elements of a range are claimed."""
        at = max(0, bisect_left(self.claimed, (start, start)) - 1)
        claimed = 0
        for low, high in self.claimed[at:]:
            if low >= stop:
                break
            claimed += max(0, min(stop, high) - max(start, low))
        return claimed


def check_ranges(ranges: Ranges, size: int) -> None:
    """Refuse ranges that are no share of a value of so many elements.

    Raises:
        MalformedError: they are none, too many, empty, not ascending, or outside of the value.
    """
    if not 0 < len(ranges) <= RANGES_MAX:
        raise MalformedError(f"it has {len(ranges)} ranges, and may have 1 to {RANGES_MAX}")
    end = 0
    for start, stop in ranges:
        if not end <= start < stop <= size:
            raise MalformedError(f"({start}, {stop}) is no range of {size} elements after {end}")
        end = stop


class Assemblies:
    """The contributions of all learners that are not whole yet, a few of each."""

    def __init__(self) -> None:
        """Hold none."""
        self._of: dict[LearnerName, dict[Answer, Assembly]] = {}

    def __len__(self) -> int:
        """Return how many are held."""
        return sum(map(len, self._of.values()))

    def claim(self, answer: Answer, size: int, ranges: Ranges) -> Assembly | None:
        """Claim elements of a contribution for a share that has arrived.

        Args:
            answer: which contribution.
            size: number of its elements, from the syncer's own layout.
            ranges: the elements.

        Returns:
            What the share is to be copied into; None if its elements came before.

        Raises:
            MalformedError: the share cannot belong to it; nothing is kept of it.
        """
        mine = self._of.get(answer.ticket.name, {})
        assembly = mine.get(answer) or Assembly(size)
        if not assembly.claim(ranges):
            return None
        if answer not in mine:
            self._of[answer.ticket.name] = mine
            mine[answer] = assembly
            while len(mine) > ASSEMBLIES_MAX:
                del mine[next(iter(mine))]
        return assembly

    def add_head(self, connection: int, head: Contribution) -> None:
        """Take in the message of the learner itself, whose share was claimed; the first stands."""
        assembly = self._of.get(head.ticket.name, {}).get(Answer.of(head))
        if assembly is not None and assembly.head is None:
            assembly.head = connection, head

    def pop_whole(self, answer: Answer) -> Assembly | None:
        """Take out a contribution if it is whole."""
        mine = self._of.get(answer.ticket.name, {})
        assembly = mine.get(answer)
        if assembly is None or not assembly.whole:
            return None
        self._drop(answer.ticket.name, answer)
        return assembly

    def forget(self, name: LearnerName) -> None:
        """Forget all of a learner's, whose link is gone."""
        self._of.pop(name, None)

    def _drop(self, name: LearnerName, answer: Answer) -> None:
        mine = self._of[name]
        del mine[answer]
        if not mine:
            del self._of[name]


HOSTS_MAX = 1024
"""Most hosts of an island that may send shares, so that a member opens no more sessions."""


def refusal(core: Core, hello: ShareHello, *, trusted: bool) -> Refused | None:
    """Return why a session for shares is refused, or None if it is open.

    `trusted` tells whether the host's credential is one that the supervisor signed.
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
    learner = core.members.learners.get(ticket.name)
    if learner is None or learner.incarnation != ticket.incarnation:
        return f"{ticket.name}/{ticket.incarnation} is no member here"
    if ticket.epoch != core.durable.epoch or ticket.round not in learner.pulls.open:
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
    learner = core.members.learners.get(name)
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

        The connection and the name are those of the member.
        """
        by_fragment = self.parted.get(connection)
        if by_fragment is None or not by_fragment[fragment][0]:
            return None
        receivers = {connection: by_fragment[fragment][0]}
        for rank, ranges in enumerate(by_fragment[fragment]):
            host = None if name is None else self.newest.get((name, rank))
            if rank == 0 or not ranges:
                continue
            if host is None:
                return None
            receivers[host] = ranges
        return receivers if len(receivers) > 1 else None

    def over(self, core: Core) -> list[int]:
        """Return the connections whose member is none any more."""
        known = core.members.learners

        def gone(hello: ShareHello) -> bool:
            member = known.get(hello.name)
            return member is None or member.incarnation != hello.incarnation

        return [connection for connection, hello in self.hosts.items() if gone(hello)]
