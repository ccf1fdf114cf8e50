"""Events that a supervisor handles. `connection` numbers the link on which a message came."""

from dataclasses import dataclass

from islands.protocol.messages.control import Command
from islands.protocol.messages.membership import Heartbeat, Join
from islands.protocol.sessions import Received


@dataclass(frozen=True, slots=True)
class JoinArrived:
    """A process asks for admission; it has `proven` that it holds the run's key, or has not.

    `returns`: it has proven that it is the incarnation that it calls its previous one.
    """

    message: Join
    connection: int
    proven: bool
    returns: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatArrived:
    """A heartbeat with a genuine credential, from `host`; None inside one process."""

    message: Heartbeat
    connection: int
    host: str | None = None


@dataclass(frozen=True, slots=True)
class NewerSupervisorProven:
    """A process has proven that there is, or was, a supervisor of a higher epoch.

    `kept`: this supervisor's disk holds that epoch, so a newer start uses the disk.
    """

    name: str
    epoch: int
    kept: bool = False


@dataclass(frozen=True, slots=True)
class CommandArrived:
    """An operator's command arrived; `genuine` tells whether the run's key made its proof."""

    message: Command
    connection: int
    genuine: bool


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """A link was closed or lost."""

    connection: int


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """A launched process has ended; `reason` says how, and is empty after an orderly end."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; sent at least every heartbeat."""


PeerEvent = Received | JoinArrived | HeartbeatArrived | CommandArrived
"""Events that the other end of a link causes; what they say may be false."""

Event = PeerEvent | NewerSupervisorProven | LinkClosed | ProcessEnded | Ticked
