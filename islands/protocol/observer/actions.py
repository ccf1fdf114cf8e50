"""The actions that an observer's state returns; the actor performs them in order."""

from dataclasses import dataclass, field

from islands.protocol.identities import Version
from islands.protocol.messages.membership import Heartbeat, Join
from islands.protocol.messages.training import FragmentUpdate, Hello, Progress


@dataclass(frozen=True, slots=True)
class ToSupervisor:
    """Send a message to the supervisor."""

    message: Join | Heartbeat


@dataclass(frozen=True, slots=True)
class ToSyncer:
    """Send a message to the syncer."""

    message: Hello | Progress


@dataclass(frozen=True, slots=True)
class DialSyncer:
    """Keep a link to the syncer at this address from now on."""

    address: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the value of this update in place of the fragment's older one."""

    message: FragmentUpdate
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Evaluate the values held; `clock` is the highest learning-rate clock seen, in steps.

    `tokens` are those that these values account for, mean over fragments.
    """

    versions: tuple[Version, ...]
    clock: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Exit:
    """End this process; `failed` is true if the user must do something."""

    reason: str
    failed: bool


Action = ToSupervisor | ToSyncer | DialSyncer | Keep | Evaluate | Exit
