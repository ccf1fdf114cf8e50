"""The actions that an observer's state returns; the actor performs them in order."""

from dataclasses import dataclass, field

from islands.protocol.messages.training import FragmentUpdate
from islands.protocol.sessions import DialSyncer, DropSyncerLink, Exit, ToSupervisor, ToSyncer


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

    clock: float
    tokens: int


Action = ToSupervisor | ToSyncer | DialSyncer | DropSyncerLink | Keep | Evaluate | Exit
