"""What can happen to a learner.

An event that came with bulk bytes has them as its `payload`: the state keeps it, hands it on with
an action, or drops it, and never looks inside. What compares events compares no payloads.
"""

from dataclasses import dataclass, field

from islands.identities import FragmentIndex, Incarnation, Lease, Ticket, Version
from islands.messages.control import Drain
from islands.messages.membership import Evicted, HeartbeatAck, Joined, Refused, Stop
from islands.messages.peers import StateOffer, StateRequest
from islands.messages.training import (
    ContributionFate,
    FinalRound,
    FragmentRequest,
    FragmentUpdate,
    LeaseGranted,
    Paused,
    PullFragment,
    Quarantined,
    Welcome,
)


@dataclass(frozen=True, slots=True)
class SupervisorLinkChanged:
    """The link to the supervisor opened or closed."""

    up: bool


@dataclass(frozen=True, slots=True)
class SyncerLinkChanged:
    """The link to the syncer opened or closed."""

    up: bool


SupervisorMessage = Joined | Refused | Evicted | HeartbeatAck | Drain | Stop


@dataclass(frozen=True, slots=True)
class FromSupervisor:
    """A message from the supervisor."""

    message: SupervisorMessage


SyncerMessage = (
    Welcome
    | Refused
    | Evicted
    | LeaseGranted
    | PullFragment
    | ContributionFate
    | FragmentRequest
    | FinalRound
    | Paused
    | Quarantined
    | Stop
)


@dataclass(frozen=True, slots=True)
class FromSyncer:
    """A control message from the syncer."""

    message: SyncerMessage


@dataclass(frozen=True, slots=True)
class UpdateArrived:
    """A published value is here; `intact` tells whether length and digest match."""

    message: FragmentUpdate
    intact: bool
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ContributionSkipped:
    """The link did not take a contribution, or had changed: the pull is not answered."""

    ticket: Ticket
    fragment: FragmentIndex


@dataclass(frozen=True, slots=True)
class SeedSkipped:
    """The link did not take a fragment of version 0."""

    fragment: FragmentIndex


@dataclass(frozen=True, slots=True)
class StateRequested:
    """A peer asks for a piece of this learner's moments; the hub vouches for its name."""

    asker: str
    message: StateRequest


@dataclass(frozen=True, slots=True)
class PieceArrived:
    """A peer's answer is here; `intact` tells whether the digest matches."""

    sender: str
    message: StateOffer
    payload: memoryview = field(compare=False, repr=False)
    intact: bool


@dataclass(frozen=True, slots=True)
class TrainerMade:
    """There is a trainer, not compiled yet: what its moments are, and in how many pieces."""

    moments_schema: str
    moment_pieces: int


@dataclass(frozen=True, slots=True)
class MomentsRead:
    """A piece of this learner's moments, for a peer, is on the host."""

    piece: int
    asker: str
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MomentsLoaded:
    """Compute was given a peer's moments; if not `taken`, its own are fresh."""

    taken: bool


@dataclass(frozen=True, slots=True)
class TimerDue:
    """The time that the state asked for has come."""


@dataclass(frozen=True, slots=True)
class TrainerReady:
    """The model is built and compiled; one step takes so many tokens."""

    batch_tokens: int


@dataclass(frozen=True, slots=True)
class StepFinished:
    """One inner step is complete. Totals are over the life of the process.

    `finite` is False if the loss was not a finite number; `leases` are the positions after it.
    """

    steps: int
    tokens: int
    step_time_s: float
    finite: bool
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Idled:
    """Compute stopped at a boundary: no quota, no data, or told to.

    `order` is that of the newest `AllowSteps` that it knew.
    """

    steps: int
    tokens: int
    leases: tuple[Lease, ...]
    order: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """base − local of one fragment, at a boundary with these totals, is on the host."""

    fragment: FragmentIndex
    base: Version
    steps: int
    tokens: int
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ValueRead:
    """The local value of a fragment that was asked for is on the host."""

    request: FragmentRequest
    incarnation: Incarnation
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ValueAdopted:
    """A published value has become the base, at a boundary with these totals.

    `incarnation` is the one that asked for it. The value is the local one too, unless what was done
    since the newest contribution in it was `carried` over.
    """

    fragment: FragmentIndex
    version: Version
    steps: int
    tokens: int
    incarnation: Incarnation
    carried: bool = False


@dataclass(frozen=True, slots=True)
class Ticked:
    """A heartbeat is due; whether the device's thread compiles at this moment."""

    compiling: bool = False


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The host wants this learner to go (a signal, a drain command)."""

    reason: str


Event = (
    SupervisorLinkChanged
    | SyncerLinkChanged
    | FromSupervisor
    | FromSyncer
    | UpdateArrived
    | ContributionSkipped
    | SeedSkipped
    | StateRequested
    | PieceArrived
    | TrainerMade
    | TrainerReady
    | MomentsRead
    | MomentsLoaded
    | TimerDue
    | StepFinished
    | Idled
    | SnapshotTaken
    | ValueRead
    | ValueAdopted
    | Ticked
    | LeaveRequested
)
