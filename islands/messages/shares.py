"""Messages of the other hosts of an island to the syncer, over sessions that carry shares alone.

Such a session belongs to a member, whose name, incarnation and credential it shows, and is none
itself: it has no heartbeats at the supervisor, no quota and no part in any round.
"""

from dataclasses import dataclass

from islands.identities import FragmentIndex, Incarnation, LearnerName, Ticket


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


@dataclass(frozen=True, slots=True)
class ShareWelcome:
    """The syncer's answer to ShareHello: this session may carry shares from now on."""

    epoch: int


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
    ranges: tuple[tuple[int, int], ...]
    digest: str
