"""Events that the syncer's state handles. They are past facts; each is handled once, in order."""

from dataclasses import dataclass

from islands.protocol.messages.membership import Leave, MembershipChanged
from islands.protocol.messages.training import (
    Contribution,
    ContributionDeclined,
    FragmentSeed,
    Hello,
    Progress,
)
from islands.protocol.syncer.plausibility import Check


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """A peer said Hello on a new link; `trusted` tells whether its credential is genuine.

    `fenced` tells whether the peer proves that there is another start of the syncer, with an epoch
    that is not below this one's.
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
    """A page of the supervisor's membership view arrived."""

    message: MembershipChanged


@dataclass(frozen=True, slots=True)
class ProgressArrived:
    """A peer's cumulative report arrived over the link `connection`."""

    progress: Progress
    connection: int


@dataclass(frozen=True, slots=True)
class ContributionArrived:
    """A contribution arrived, and its payload was measured with the result `check`."""

    contribution: Contribution
    check: Check
    connection: int


@dataclass(frozen=True, slots=True)
class PullDeclined:
    """A learner has nothing to answer a pull with."""

    message: ContributionDeclined


@dataclass(frozen=True, slots=True)
class SeedArrived:
    """A fragment of the initial value arrived; `intact` tells whether `Vault.keep_seed` took it."""

    seed: FragmentSeed
    intact: bool


@dataclass(frozen=True, slots=True)
class InitialRead:
    """Version 0 was read from a file, not fetched from a learner; digests by fragment."""

    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeaveArrived:
    """A learner departs of its own accord."""

    message: Leave


@dataclass(frozen=True, slots=True)
class IncrementFacts:
    """The lengths of an increment and of the whole value, and the norm of what is left."""

    size_bytes: int
    value_bytes: int
    remainder_norm: float


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """Measurements of a merge; `digest` is of the new published value. Tuples are in name order.

    `increment` is None if the value has no increment, as in a run that sends whole values.
    """

    digest: str
    weights: tuple[float, ...]
    norms: tuple[float, ...]
    direction_norm: float
    cosine_to_previous: float
    increment: IncrementFacts | None = None


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
    """Somebody with the right to do so asked for a proper end of the run."""

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
"""Events that come from a peer, whose content may be false."""

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
