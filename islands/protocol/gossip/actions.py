"""The actions of a learner that gossips; those in `GossipEngineAction` are the engine's."""

from dataclasses import dataclass, field

from islands.protocol.identities import FragmentIndex, Incarnation, Version
from islands.protocol.messages.gossip import Share, ShareDeclined, ValueGiven, ValueWanted

Payload = tuple[memoryview, ...]
"""Bytes of a share: the slow value φ, then φ − θ."""


@dataclass(frozen=True, slots=True)
class TakeShare:
    """Take a snapshot of a fragment at the next step boundary; the clock is at least `clock`."""

    fragment: FragmentIndex
    round: int
    clock: float


@dataclass(frozen=True, slots=True)
class AdoptMixed:
    """Make a gossip step's result the base, and keep the work since its snapshot on top.

    `gradient` is φ − θ of that snapshot, taken at the total of `steps_total`.
    """

    fragment: FragmentIndex
    steps_total: int
    value: memoryview = field(compare=False, repr=False)
    gradient: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Replace base and local value of a fragment by a neighbour's slow value."""

    fragment: FragmentIndex
    clock: float
    value: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class HoldValue:
    """Keep base and local value of a fragment, as a new incarnation that holds this version."""

    fragment: FragmentIndex
    version: Version
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class ReturnToOrigin:
    """Measure contributions from version 0 again; `gradient` is the slow value minus version 0."""

    fragment: FragmentIndex
    value: memoryview = field(compare=False, repr=False)
    gradient: memoryview = field(compare=False, repr=False)


GossipEngineAction = TakeShare | AdoptMixed | TakeOver | HoldValue | ReturnToOrigin


@dataclass(frozen=True, slots=True)
class ToNeighbour:
    """Send a message to a neighbour, with its bytes if it has any."""

    peer: str
    message: Share | ShareDeclined | ValueWanted
    payload: Payload = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GiveValue:
    """Send the slow value of a fragment to a newcomer; the actor fills in its digest."""

    peer: str
    message: ValueGiven


@dataclass(frozen=True, slots=True)
class Mix:
    """Make a gossip step of the own share and those of the neighbours, by name."""

    fragment: FragmentIndex
    steps_total: int
    own: Payload = field(compare=False, repr=False)
    shares: dict[str, Payload] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Gather:
    """Have the work of all exchanges measured from version 0, for the last contribution."""

    fragment: FragmentIndex


@dataclass(frozen=True, slots=True)
class FollowNeighbours:
    """Keep links to none but the learners of this roster, under this incarnation."""

    incarnation: Incarnation | None


GossipAction = GossipEngineAction | ToNeighbour | GiveValue | Mix | Gather | FollowNeighbours
