"""The events that an observer's state handles."""

from dataclasses import dataclass, field

from islands.protocol.messages.membership import Evicted, HeartbeatAck, Joined, Refused, Stop
from islands.protocol.messages.training import FragmentUpdate, Welcome


@dataclass(frozen=True, slots=True)
class SupervisorLinkChanged:
    """The link to the supervisor opened or closed."""

    up: bool


@dataclass(frozen=True, slots=True)
class SyncerLinkChanged:
    """The link to the syncer opened or closed."""

    up: bool


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A control message from the supervisor or the syncer."""

    message: Joined | Refused | Evicted | HeartbeatAck | Stop | Welcome


@dataclass(frozen=True, slots=True)
class UpdateArrived:
    """A published value has arrived; `intact` tells whether its digest matches."""

    message: FragmentUpdate
    intact: bool
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EvaluationFinished:
    """The last evaluation has ended, whether it gave figures or failed."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """A heartbeat is due."""


Event = (
    SupervisorLinkChanged
    | SyncerLinkChanged
    | MessageArrived
    | UpdateArrived
    | EvaluationFinished
    | Ticked
)
