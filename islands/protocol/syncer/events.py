"""Events that the syncer's state handles. They are past facts; each is handled once, in order.

A message is an event by itself, unless facts are measured beside it (`protocol/sessions.py`).
"""

from dataclasses import dataclass

from islands.protocol.messages.membership import MembershipChanged
from islands.protocol.messages.training import Contribution, FragmentSeed, Hello
from islands.protocol.sessions import Received
from islands.protocol.syncer.plausibility import Check


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """A peer said Hello on a new link; `trusted`: its credential is genuine.

    `fenced`: it proves another start of the syncer, with an epoch that is not below this one's.
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
class ContributionArrived:
    """A payload was measured as `check` says, `inspected_s` after its last byte arrived."""

    contribution: Contribution
    check: Check
    connection: int
    inspected_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SeedArrived:
    """A fragment of the initial value arrived; `intact` if `ValueStore.keep_seed` took it."""

    seed: FragmentSeed
    intact: bool


@dataclass(frozen=True, slots=True)
class InitialRead:
    """Version 0 was read from a file, not fetched from a learner; digests by fragment."""

    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IncrementFacts:
    """The lengths of an increment and of the whole value, and the norm of what is left."""

    size_bytes: int
    value_bytes: int
    remainder_norm: float


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """Measurements of a merge, in name order; `digest` is of the new published value."""

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


PeerEvent = LinkOpened | Received | ContributionArrived | SeedArrived
"""Events that come from a peer, whose content may be false."""

LateEvent = LinkOpened | JournalFinished | SupervisorLinkChanged | EndHeard
"""Events that still matter once the run is over, and the ledger is closed."""

Event = (
    PeerEvent
    | LinkClosed
    | MembershipChanged
    | InitialRead
    | MergeFinished
    | JournalFinished
    | Ticked
    | StopRequested
    | SupervisorLinkChanged
    | EndHeard
)
