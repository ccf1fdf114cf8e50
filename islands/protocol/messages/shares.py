"""Messages of the other hosts of an island to the syncer, over sessions that carry shares alone.

Such a session belongs to a member, whose name, incarnation and credential it shows, and is none
itself: it has no heartbeats at the supervisor, no quota and no part in any round.
"""

from dataclasses import dataclass

from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Ticket, Version
from messaging.envelope import message

Ranges = tuple[tuple[int, int], ...]
"""Ranges (start, stop) of elements of a flat value, ascending."""

BUFFERS_MAX = 64
"""Most ranges of a host's share of a published value, each of which is a buffer of its message."""

RANGES_MAX = 1024
"""Most ranges of all shares of one value: those of as many devices, of which no two neighbours are
on one host."""


@message("ShareHello")
@dataclass(frozen=True, slots=True)
class ShareHello:
    """Host → syncer: open a session for shares of what the member of this name contributes.

    `rank` is the host's among those of its island, from 1 on.
    """

    protocol: int
    run: str
    name: LearnerName
    incarnation: Incarnation
    credential: str
    fingerprint: str
    rank: int


@message("ShareWelcome")
@dataclass(frozen=True, slots=True)
class ShareWelcome:
    """The syncer's answer to ShareHello: this session may carry shares from now on."""

    epoch: int


@message("ContributionShare")
@dataclass(frozen=True, slots=True)
class ContributionShare:
    """A share of a contribution; payload: the elements of its ranges, one after the other.

    `ticket`, `answer`, `fragment` and `precision` are those of the `Contribution` that it belongs
    to, which tells all else, and may come before the share or after it. `digest` is that of the
    payload.
    """

    ticket: Ticket
    answer: int
    fragment: FragmentIndex
    precision: str
    ranges: Ranges
    digest: str


@message("UpdatesInShares")
@dataclass(frozen=True, slots=True)
class UpdatesInShares:
    """Member → syncer: send each host its share of published values, while all have sessions.

    `shares` are the ranges of each host, by rank, of each fragment; together, the hosts' are all
    elements. A fragment of which rank 0 has none is sent whole, to rank 0; so are all, if `shares`
    is empty.
    """

    name: LearnerName
    incarnation: Incarnation
    shares: tuple[tuple[Ranges, ...], ...]


@message("UpdateShare")
@dataclass(frozen=True, slots=True)
class UpdateShare:
    """Syncer → host: its share of a published value; payload: one buffer for each range.

    The member is told the rest by its own `FragmentUpdate`. `digest` is that of the payload.
    """

    fragment: FragmentIndex
    version: Version
    ranges: Ranges
    digest: str
