"""The events that an observer's state handles."""

from dataclasses import dataclass

from islands.protocol.sessions import SupervisorLinkChanged, SyncerLinkChanged, UpdateArrived


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A control message from the supervisor or the syncer."""

    message: object


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
