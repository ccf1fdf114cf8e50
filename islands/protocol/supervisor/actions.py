"""Actions that a supervisor's state decides on; the actor performs them in order."""

from dataclasses import dataclass

from islands.protocol.messages.control import StepFigures
from islands.protocol.tape.entry import Record


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on a link; the actor signs the credential of a `Joined` on the way out."""

    connection: int
    message: object


@dataclass(frozen=True, slots=True)
class Drop:
    """Close a link, since handling a message that came over it failed."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class SendRunSpec:
    """Send the run spec on a link; `name` is that of the process that asked."""

    connection: int
    name: str


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Launch the process of this name after a delay; the name may be a new one."""

    name: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class KillProcess:
    """Kill the process of this name, which is one that this supervisor launched."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The process of this name ended too often: it is not launched again."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeepPromoted:
    """Keep on the disk that this standby is the syncer now, so that the next start knows it."""

    name: str


@dataclass(frozen=True, slots=True)
class Revoke:
    """End all invitations of a name, and keep that; then `events.Revoked` answers the command."""

    name: str
    by: str
    connection: int


@dataclass(frozen=True, slots=True)
class CountFigures:
    """Add a member's step figures to those of the run."""

    name: str
    figures: StepFigures


@dataclass(frozen=True, slots=True)
class FinishRun:
    """The run is over, as a syncer said; stay for so long, to tell those who do not know it yet."""

    reason: str
    connection: int
    stay_s: float = 0.0


Action = (
    Send
    | Drop
    | SendRunSpec
    | StartProcess
    | KillProcess
    | GiveUp
    | Revoke
    | KeepPromoted
    | CountFigures
    | Record
    | FinishRun
)
