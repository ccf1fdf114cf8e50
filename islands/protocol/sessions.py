"""Events and actions of a process that keeps sessions with a supervisor and a syncer.

Learner and observer share them.
"""

from dataclasses import dataclass, field

from islands.protocol.messages.training import FragmentUpdate


@dataclass(frozen=True, slots=True)
class SupervisorLinkChanged:
    """The link to the supervisor opened or closed."""

    up: bool


@dataclass(frozen=True, slots=True)
class SyncerLinkChanged:
    """The link to the syncer opened or closed."""

    up: bool


@dataclass(frozen=True, slots=True)
class UpdateArrived:
    """A published value has arrived; `intact` tells whether its digest matches."""

    message: FragmentUpdate
    intact: bool
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ToSupervisor:
    """Send a message to the supervisor."""

    message: object


@dataclass(frozen=True, slots=True)
class ToSyncer:
    """Send a message to the syncer."""

    message: object


@dataclass(frozen=True, slots=True)
class DialSyncer:
    """Keep a link to the syncer at this address from now on."""

    address: str


@dataclass(frozen=True, slots=True)
class DropSyncerLink:
    """Close the link to the syncer; the dialler opens a new one to the last known address."""

    reason: str


@dataclass(frozen=True, slots=True)
class Exit:
    """End this process; `failed` is true if the user must do something."""

    reason: str
    failed: bool
