"""The events of a learner that gossips."""

from dataclasses import dataclass, field

from islands.protocol.gossip.actions import Payload
from islands.protocol.identities import FragmentIndex
from islands.protocol.messages.gossip import Share, ShareDeclined, ValueGiven, ValueWanted


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
    """A neighbour's share has arrived; `problem` is why it is refused, None if it is not."""

    sender: str
    message: Share
    problem: str | None
    payload: Payload = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NeighbourSaid:
    """A message without bytes came from another learner."""

    sender: str
    message: ShareDeclined | ValueWanted


@dataclass(frozen=True, slots=True)
class ValueArrived:
    """A slow value that this newcomer asked for has arrived; `problem` as of a share."""

    sender: str
    message: ValueGiven
    problem: str | None
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
