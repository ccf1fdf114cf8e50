"""What can happen to a supervisor. `connection` numbers the link on which a message came."""

from dataclasses import dataclass

from islands.messages.control import Command, StepFigures
from islands.messages.membership import Heartbeat, Join, Leave, RunSpecRequest, Stop


@dataclass(frozen=True, slots=True)
class JoinArrived:
    """Somebody asks for admission.

    `proven` tells whether it has shown that it holds the key, and `returns` whether it has shown
    that it is the incarnation that it calls its previous one.
    """

    message: Join
    connection: int
    proven: bool
    returns: bool = False


@dataclass(frozen=True, slots=True)
class RunSpecRequested:
    """Somebody asks what the run is."""

    message: RunSpecRequest
    connection: int


@dataclass(frozen=True, slots=True)
class HeartbeatArrived:
    """A sign of life; `trusted` tells whether its credential is one of ours."""

    message: Heartbeat
    connection: int
    trusted: bool


@dataclass(frozen=True, slots=True)
class LeaveArrived:
    """A member departs on its own will."""

    message: Leave


@dataclass(frozen=True, slots=True)
class StopArrived:
    """The run is over, says whoever is at the other end of a link: only a syncer may."""

    message: Stop
    connection: int


@dataclass(frozen=True, slots=True)
class CommandArrived:
    """An operator's wish; `genuine` tells whether its proof is made with the run's key."""

    message: Command
    connection: int
    genuine: bool


@dataclass(frozen=True, slots=True)
class FiguresArrived:
    """Whoever a link is known to be of tells what its process did."""

    name: str
    message: StepFigures
    connection: int


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """A link is gone."""

    connection: int


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """A process that we launched has ended; `reason` says how, empty if as it should."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; sent at least every heartbeat."""


PeerEvent = (
    JoinArrived
    | RunSpecRequested
    | HeartbeatArrived
    | StopArrived
    | CommandArrived
    | FiguresArrived
)
"""What somebody said over a link; it may be a lie."""

Event = PeerEvent | LeaveArrived | LinkClosed | ProcessEnded | Ticked
