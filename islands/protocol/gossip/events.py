"""The events of a learner that gossips."""

from dataclasses import dataclass, field

from islands.protocol.gossip.actions import Payload
from islands.protocol.identities import FragmentIndex
from islands.protocol.messages.gossip import Share, ShareDeclined, ValueGiven, ValueWanted


@dataclass(frozen=True, slots=True)
class Checked:
    """The check of a neighbour's values: why they are refused, else their distance.

    `norm` is that of θ_j − φ_i, or of φ_j − φ_i where only a slow value was given, and `own` that
    of φ_i.
    """

    problem: str | None = None
    norm: float = 0.0
    own: float = 0.0


@dataclass(frozen=True, slots=True)
class ShareTaken:
    """The own share of a round, taken at the total of `steps`, has reached the host."""

    fragment: FragmentIndex
    round: int
    steps: int
    digest: str
    payload: Payload = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ShareArrived:
    """A neighbour's share has arrived, and was checked."""

    sender: str
    message: Share
    checked: Checked
    payload: Payload = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NeighbourSaid:
    """A message without bytes came from another learner."""

    sender: str
    message: ShareDeclined | ValueWanted


@dataclass(frozen=True, slots=True)
class ValueArrived:
    """A slow value that this newcomer asked for has arrived, and was checked."""

    sender: str
    message: ValueGiven
    checked: Checked
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Mixed:
    """A gossip step was computed."""

    fragment: FragmentIndex
    steps_total: int
    value: memoryview = field(compare=False, repr=False)
    gradient: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WorkGathered:
    """Contributions to this fragment are measured from version 0 from now on."""

    fragment: FragmentIndex


GossipEvent = ShareTaken | ShareArrived | NeighbourSaid | ValueArrived | Mixed | WorkGathered
