"""What can happen to a supervisor. `connection` numbers the link on which a message came."""

from dataclasses import dataclass

from islands.messages import Heartbeat, Join, Leave, Stop


@dataclass(frozen=True, slots=True)
class JoinArrived:
    """Somebody asks for admission."""

    message: Join
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
    """The syncer finished the run, or the user asked for its end."""

    message: Stop


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """A link is gone."""

    connection: int


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """A process that we launched has ended; `reason` says how."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; sent at least every heartbeat."""


Event = (
    JoinArrived | HeartbeatArrived | LeaveArrived | StopArrived | LinkClosed | ProcessEnded | Ticked
)
