"""What can happen to a syncer. Events are past facts; each is handled once, in order."""

from dataclasses import dataclass

from islands.messages.membership import Leave, MembershipChanged
from islands.messages.training import (
    Contribution,
    ContributionDeclined,
    FragmentSeed,
    Hello,
    Progress,
)
from islands.syncer.admission import Check


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """A peer said Hello on a new link; `trusted` tells whether its credential is genuine.

    `fenced` tells that it proves another start of the syncer, whose epoch is not below this one's.
    """

    hello: Hello
    connection: int
    trusted: bool
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """A link to a peer that had said Hello is gone."""

    name: str
    connection: int


@dataclass(frozen=True, slots=True)
class MembershipArrived:
    """The supervisor's view."""

    message: MembershipChanged


@dataclass(frozen=True, slots=True)
class ProgressArrived:
    """A learner's cumulative report, on a given link."""

    progress: Progress
    connection: int


@dataclass(frozen=True, slots=True)
class ContributionArrived:
    """A contribution, with what was measured on its payload."""

    contribution: Contribution
    check: Check
    connection: int


@dataclass(frozen=True, slots=True)
class PullDeclined:
    """A learner has nothing to answer a pull with."""

    message: ContributionDeclined


@dataclass(frozen=True, slots=True)
class SeedArrived:
    """One fragment of the initial value; `intact` tells whether length and digest match."""

    seed: FragmentSeed
    intact: bool


@dataclass(frozen=True, slots=True)
class InitialRead:
    """Version 0 came from elsewhere than a learner; digests by fragment."""

    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeaveArrived:
    """A learner departs on its own will."""

    message: Leave


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """What a merge came to; `digest` is of the new published value. Lists by sorted name."""

    digest: str
    weights: tuple[float, ...]
    norms: tuple[float, ...]
    direction_norm: float
    cosine_to_previous: float


@dataclass(frozen=True, slots=True)
class MergeFinished:
    """The worker has computed a fragment's next value."""

    fragment: int
    round: int
    facts: MergeFacts


@dataclass(frozen=True, slots=True)
class JournalFinished:
    """A journal record is durable; so are all with a smaller sequence number."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody with the right to do so wants the run to end properly."""

    reason: str


@dataclass(frozen=True, slots=True)
class SupervisorLinkChanged:
    """The link to the supervisor opened or closed."""

    up: bool


@dataclass(frozen=True, slots=True)
class EndHeard:
    """The supervisor knows that the run is over."""


PeerEvent = (
    LinkOpened | ProgressArrived | ContributionArrived | PullDeclined | SeedArrived | LeaveArrived
)
"""What a peer said; it may be a lie."""

Event = (
    PeerEvent
    | LinkClosed
    | MembershipArrived
    | InitialRead
    | MergeFinished
    | JournalFinished
    | Ticked
    | StopRequested
    | SupervisorLinkChanged
    | EndHeard
)
