"""What a learner's state asks of the world, performed in order.

Those in `EngineAction` are carried out by the engine as they are, at a step boundary.
"""

from dataclasses import dataclass, field

from islands.identities import FragmentIndex, Incarnation, Lease, Version
from islands.messages.membership import Heartbeat, Join, Leave
from islands.messages.peers import StateOffer, StateRequest
from islands.messages.training import (
    Contribution,
    ContributionDeclined,
    FragmentRequest,
    FragmentSeed,
    Hello,
    Merged,
    Progress,
)
from islands.tape.entry import Record


@dataclass(frozen=True, slots=True)
class ToSupervisor:
    """Send to the supervisor."""

    message: Join | Heartbeat | Leave


@dataclass(frozen=True, slots=True)
class ToSyncer:
    """Send to the syncer."""

    message: Hello | Progress | ContributionDeclined | Leave


@dataclass(frozen=True, slots=True)
class DialSyncer:
    """Keep a link to the syncer at this address from now on."""

    address: str


@dataclass(frozen=True, slots=True)
class DropSyncerLink:
    """Close the link to the syncer; a new one is dialled while an address is known."""

    reason: str


@dataclass(frozen=True, slots=True)
class Contribute:
    """Send a snapshot; the actor fills in its digest."""

    message: Contribution
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReadValue:
    """Read the local value of a fragment, which is to become its version 0."""

    request: FragmentRequest
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class OfferSeed:
    """Send a value that was read as version 0; the actor fills in its digest."""

    message: FragmentSeed
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AdoptValue:
    """Take over a published value (flat float32) at the next boundary.

    A newer one for the same fragment replaces it, if it comes before that boundary. `clock` is the
    fleet's when the syncer of `epoch` sent it. `merged` is the newest contribution in it; with
    `carry` what was done since that one stays, or since the base if it was in the base already.
    `sent` are the bytes of that contribution as they went over the wire.
    """

    fragment: FragmentIndex
    version: Version
    clock: float
    epoch: int
    incarnation: Incarnation
    payload: memoryview = field(compare=False, repr=False)
    carry: bool = False
    merged: Merged | None = None
    sent: memoryview | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PlanSnapshots:
    """At every boundary from now on, take snapshots of these fragments, in this order."""

    fragments: tuple[FragmentIndex, ...]


@dataclass(frozen=True, slots=True)
class AllowSteps:
    """Step on these leases until so many tokens, over the life of the process, are processed.

    `order` counts these actions; compute says which one it had when it came to a stop.
    """

    until_tokens: int
    leases: tuple[Lease, ...]
    order: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ResetMoments:
    """Forget the inner optimizer's state: it is not finite."""


@dataclass(frozen=True, slots=True)
class ToPeer:
    """Send to another learner, through the syncer."""

    peer: str
    message: StateRequest | StateOffer


@dataclass(frozen=True, slots=True)
class LoadMoments:
    """Replace the inner optimizer's state by these pieces, in order, before the first step."""

    pieces: tuple[memoryview, ...] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LoadKept:
    """Replace the inner optimizer's state by what lies on disk, before the first step."""


@dataclass(frozen=True, slots=True)
class ReadMoments:
    """Copy a piece of the inner optimizer's state for a peer, at one of the next boundaries."""

    piece: int
    asker: str


@dataclass(frozen=True, slots=True)
class OfferMoments:
    """Send a piece that was read; the actor fills in its digest."""

    asker: str
    message: StateOffer
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send `TimerDue` after so many seconds."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Exit:
    """End this process; `failed` if the user must do something."""

    reason: str
    failed: bool


EngineAction = (
    AdoptValue | PlanSnapshots | AllowSteps | ReadValue | ResetMoments | ReadMoments | LoadMoments
)

Action = (
    EngineAction
    | ToSupervisor
    | ToSyncer
    | DialSyncer
    | DropSyncerLink
    | Contribute
    | OfferSeed
    | ToPeer
    | LoadKept
    | OfferMoments
    | SetTimer
    | Record
    | Exit
)
