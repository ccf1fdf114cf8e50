"""The events that a learner's state handles.

Bulk bytes are an event's `payload`, which the state keeps, hands on with an action, or drops, and
never looks into. Equality of events ignores payloads.
"""

from dataclasses import dataclass, field

from islands.protocol.gossip.events import GossipEvent
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Ticket, Version
from islands.protocol.messages.training import FragmentRequest, StateOffer, StateRequest
from islands.protocol.sessions import SupervisorLinkChanged, SyncerLinkChanged, UpdateArrived
from islands.protocol.settings.choices import Precision


@dataclass(frozen=True, slots=True)
class FromSupervisor:
    """A message from the supervisor, which its handler in `FROM_SUPERVISOR` handles as it came."""

    message: object


@dataclass(frozen=True, slots=True)
class FromSyncer:
    """A message from the syncer, which its handler in `FROM_SYNCER` handles as it came."""

    message: object


@dataclass(frozen=True, slots=True)
class ContributionEncoded:
    """A contribution was encoded, and is sent after this event."""

    ticket: Ticket
    fragment: FragmentIndex
    precision: Precision
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ContributionSkipped:
    """A contribution was not sent: the link refused it or changed, or a newer one took its turn."""

    ticket: Ticket
    fragment: FragmentIndex


@dataclass(frozen=True, slots=True)
class SeedSkipped:
    """A fragment of version 0 was not sent, because the link did not take it."""

    fragment: FragmentIndex


@dataclass(frozen=True, slots=True)
class StateRequested:
    """A peer asks for a piece of this learner's moments; the syncer has verified its name."""

    asker: str
    message: StateRequest


@dataclass(frozen=True, slots=True)
class PieceArrived:
    """A peer's answer has arrived; `intact` tells whether the digest matches."""

    sender: str
    message: StateOffer
    payload: memoryview = field(compare=False, repr=False)
    intact: bool


@dataclass(frozen=True, slots=True)
class TrainerMade:
    """The trainer exists but is not compiled; `hardware` names its devices for people."""

    moments_schema: str
    moment_pieces: int
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class MomentsRead:
    """A piece of this learner's moments has been copied to the host, for a peer."""

    piece: int
    asker: str
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MomentsLoaded:
    """Compute was given a donor's or the disk's moments; if not `taken`, its own stay fresh."""

    taken: bool


@dataclass(frozen=True, slots=True)
class TimerDue:
    """The timer that the state set has expired."""


@dataclass(frozen=True, slots=True)
class TrainerReady:
    """The model is built and compiled; one step takes so many tokens."""

    batch_tokens: int


@dataclass(frozen=True, slots=True)
class StepFinished:
    """One inner step is complete, after which the process has these totals and positions."""

    steps: int
    tokens: int
    step_time_s: float
    finite: bool
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Idled:
    """Compute stopped at a boundary: it has no quota or no data, or was ordered to stop.

    `order` is that of the newest `AllowSteps` that it knew. `waiting` says that only `until_steps`
    keeps it from stepping, `late` that only its next batch does, which has not been read yet.
    """

    steps: int
    tokens: int
    leases: tuple[Lease, ...]
    order: int
    waiting: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot (base − local, at these totals), for neighbours if of a `round`, is on host."""

    fragment: FragmentIndex
    base: Version
    steps: int
    tokens: int
    payload: memoryview = field(compare=False, repr=False)
    round: int | None = None


@dataclass(frozen=True, slots=True)
class ValueRead:
    """The requested local value of a fragment has been copied to the host."""

    request: FragmentRequest
    incarnation: Incarnation
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ValueAdopted:
    """A published value has become the base, at a boundary with these totals.

    It replaced the local value too, unless the work since its newest contribution was `carried`.
    """

    fragment: FragmentIndex
    version: Version
    steps: int
    tokens: int
    incarnation: Incarnation
    carried: bool = False


@dataclass(frozen=True, slots=True)
class Ticked:
    """A heartbeat is due; `compiling` tells whether the device's thread compiles right now."""

    compiling: bool = False


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The host asks this learner to shut down gracefully, for instance by a signal."""

    reason: str


ComputeReport = (
    TrainerMade
    | TrainerReady
    | StepFinished
    | Idled
    | SnapshotTaken
    | ValueRead
    | ValueAdopted
    | MomentsRead
    | MomentsLoaded
)

Event = (
    SupervisorLinkChanged
    | SyncerLinkChanged
    | FromSupervisor
    | FromSyncer
    | Ticked
    | LeaveRequested
    | UpdateArrived
    | ContributionEncoded
    | ContributionSkipped
    | SeedSkipped
    | StateRequested
    | PieceArrived
    | TimerDue
    | ComputeReport
    | GossipEvent
)
