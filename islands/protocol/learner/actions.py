"""The actions that a learner's state returns; the actor performs them in order.

The engine itself carries out those in `EngineAction`, at a step boundary.
"""

from dataclasses import dataclass, field

from islands.protocol.gossip.actions import GossipAction, GossipEngineAction
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Version
from islands.protocol.messages import training
from islands.protocol.messages.training import StateOffer, StateRequest
from islands.protocol.sessions import DialSyncer, DropSyncerLink, Exit, ToSupervisor, ToSyncer
from islands.protocol.settings.choices import Precision
from islands.protocol.tape.entry import Record


@dataclass(frozen=True, slots=True)
class SettleFeedback:
    """All contributions to a fragment up to a round are decided; only `merged` was applied."""

    fragment: FragmentIndex
    epoch: int
    round: int
    merged: training.Merged | None


@dataclass(frozen=True, slots=True)
class ResetFeedback:
    """Drop what error feedback keeps: this learner starts over from published values."""


@dataclass(frozen=True, slots=True)
class Contribute:
    """Send a snapshot; the actor encodes it, and fills in its digest."""

    message: training.Contribution
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReadValue:
    """Read the base of a fragment, so that it can be offered as version 0."""

    request: training.FragmentRequest
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class OfferSeed:
    """Offer a base to the syncer as version 0; the actor fills in its digest."""

    message: training.FragmentSeed
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AdoptValue:
    """Adopt a published value (flat float32) at the next boundary.

    A newer value for the same fragment replaces it until then. `clock` is the fleet's clock when
    the syncer of `epoch` sent the value, and `merged` this learner's newest contribution in it.
    With `carry`, the local work since that contribution is kept, or since the base if the base
    contained it already; `sent` are its bytes as sent, in `sent_precision` if the host encoded it.
    Otherwise the value replaces the local one, but for its fraction `local_share`. While compute
    steps, the value waits until the total of steps is `at_steps`.
    """

    fragment: FragmentIndex
    version: Version
    clock: float
    epoch: int
    incarnation: Incarnation
    payload: memoryview = field(compare=False, repr=False)
    carry: bool = False
    merged: training.Merged | None = None
    sent: memoryview | None = field(default=None, compare=False, repr=False)
    local_share: float = 0.0
    at_steps: int = 0
    sent_precision: Precision | None = None


@dataclass(frozen=True, slots=True)
class PlanSnapshots:
    """Snapshot these fragments in this order at every boundary, or once at the total `at_steps`."""

    fragments: tuple[FragmentIndex, ...]
    at_steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AllowSteps:
    """Step on these leases up to the process's total of `until_tokens`, and of `until_steps`.

    `order` numbers these actions; `Idled` names the newest one that compute knew when it stopped.
    """

    until_tokens: int
    leases: tuple[Lease, ...]
    order: int = field(default=0, compare=False)
    until_steps: int | None = None


@dataclass(frozen=True, slots=True)
class ResetMoments:
    """Reset the inner optimizer's state, because it is not finite."""


@dataclass(frozen=True, slots=True)
class ToPeer:
    """Send a message through the syncer to a learner; the actor fills in a piece's digest."""

    peer: str
    message: StateRequest | StateOffer
    payload: memoryview | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LoadMoments:
    """Replace the inner optimizer's state with these pieces, in order, before the first step."""

    pieces: tuple[memoryview, ...] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LoadCheckpoint:
    """Replace the inner optimizer's state with the checkpoint on disk, before the first step."""


@dataclass(frozen=True, slots=True)
class ReadMoments:
    """Copy a piece of the inner optimizer's state for a peer, at one of the next boundaries."""

    piece: int
    asker: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Deliver `TimerDue` to the state after so many seconds."""

    after_s: float


EngineAction = (
    AdoptValue
    | PlanSnapshots
    | AllowSteps
    | ReadValue
    | ResetMoments
    | ReadMoments
    | LoadMoments
    | GossipEngineAction
)

Action = (
    EngineAction
    | ToSupervisor
    | ToSyncer
    | DialSyncer
    | DropSyncerLink
    | Contribute
    | SettleFeedback
    | ResetFeedback
    | OfferSeed
    | ToPeer
    | LoadCheckpoint
    | SetTimer
    | GossipAction
    | Record
    | Exit
)
