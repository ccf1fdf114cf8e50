"""Sessions: events and actions that roles have in common, and the handlers of messages.

A message that needs no facts beside it is an event as it came: the actor hands it on in a
`Received`, and the one handler of its type is called, which is registered where it is defined. So
what a role accepts is what it handles.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Concatenate, Generic, ParamSpec, TypeVar

from islands.protocol.messages.training import FragmentUpdate

C = TypeVar("C")
M = TypeVar("M")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Received:
    """A message that arrived over the link `connection`; what it says may be false."""

    message: object
    connection: int


def claimed_name(message: object) -> str | None:
    """Return the name in which a message speaks, which the link must have; None if it has none."""
    name: str | None = getattr(message, "name", None)
    return name


class Handlers(Generic[C, P]):
    """Functions of a memory of type `C`, a message, and the facts `P` beside it, by its type."""

    def __init__(self) -> None:
        self._of: dict[type, Callable[..., None]] = {}

    def handles(
        self, kind: type[M]
    ) -> Callable[[Callable[Concatenate[C, M, P], None]], Callable[Concatenate[C, M, P], None]]:
        def register(
            handler: Callable[Concatenate[C, M, P], None],
        ) -> Callable[Concatenate[C, M, P], None]:
            self._of[kind] = handler
            return handler

        return register

    def __contains__(self, message: object) -> bool:
        return type(message) in self._of

    def handle(self, core: C, message: object, *args: P.args, **kwargs: P.kwargs) -> None:
        self._of[type(message)](core, message, *args, **kwargs)


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
