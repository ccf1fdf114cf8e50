"""Events that a supervisor handles. `connection` numbers the link on which a message came."""

from collections.abc import Mapping
from dataclasses import dataclass

from islands.protocol.invitations import Invitation
from islands.protocol.messages.control import Command
from islands.protocol.messages.membership import Heartbeat, Join
from islands.protocol.sessions import Received


@dataclass(frozen=True, slots=True)
class JoinArrived:
    """A process asks for admission; it has `proven` that it holds the run's key, or has not.

    `returns`: it has proven that it is the incarnation that it calls its previous one. Who has
    dialled with the run's token has no invitation.
    """

    message: Join
    connection: int
    proven: bool
    returns: bool = False
    invitation: Invitation | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatArrived:
    """A heartbeat with a genuine credential, from `host`; None inside one process."""

    message: Heartbeat
    connection: int
    host: str | None = None
    invitation: Invitation | None = None


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
    """A command arrived; it is `genuine` if the operator with this invitation has signed it.

    Without an invitation that is who holds the run's key.
    """

    message: Command
    connection: int
    genuine: bool
    invitation: Invitation | None = None


@dataclass(frozen=True, slots=True)
class Revoked:
    """Invitations of a name were revoked by a command, and all the `revoked` are these now.

    `failure` says why they are not kept beyond this start of the hub; it is empty if they are.
    """

    name: str
    by: str
    connection: int
    revoked: Mapping[str, int]
    failure: str


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
class RunDiverged:
    """The run has diverged, as its hub sees by the loss, and is to be paused."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; sent at least every heartbeat."""


PeerEvent = Received | JoinArrived | HeartbeatArrived | CommandArrived
"""Events that the other end of a link causes; what they say may be false."""

Event = (
    PeerEvent | NewerSupervisorProven | Revoked | LinkClosed | ProcessEnded | RunDiverged | Ticked
)
