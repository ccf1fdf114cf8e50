"""What a supervisor's state asks of the world, performed in order."""

from dataclasses import dataclass

from islands.messages.control import CommandAnswer, Drain, StepFigures
from islands.messages.membership import (
    Evicted,
    HeartbeatAck,
    Joined,
    MembershipChanged,
    Refused,
    Stop,
)
from islands.tape.entry import Record

Outgoing = (
    Joined | Refused | Evicted | HeartbeatAck | MembershipChanged | Stop | Drain | CommandAnswer
)


@dataclass(frozen=True, slots=True)
class Send:
    """Send on a link; a `Joined` gets its credential signed on the way out."""

    connection: int
    message: Outgoing


@dataclass(frozen=True, slots=True)
class Drop:
    """End a link: what came over it could not be taken in."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class SendRunSpec:
    """Tell somebody on a link what the run is."""

    connection: int
    name: str


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Launch the process of this name, after a delay; the name may be a new one."""

    name: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class KillProcess:
    """Kill the process of this name; only processes that we launched."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The process of this name ended too often: it is not launched again."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class CountFigures:
    """Add up what the process of a member did."""

    name: str
    figures: StepFigures


@dataclass(frozen=True, slots=True)
class FinishRun:
    """The run is over."""

    reason: str


Action = (
    Send
    | Drop
    | SendRunSpec
    | StartProcess
    | KillProcess
    | GiveUp
    | CountFigures
    | Record
    | FinishRun
)
