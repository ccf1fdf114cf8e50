"""Who is in a company, and what a word of theirs is to whoever hears it: an event."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from islands.protocol.learner import events as learner_events
from islands.protocol.learner.state import LearnerState
from islands.protocol.membership import MembershipState
from islands.protocol.messages.control import Command
from islands.protocol.messages.membership import Heartbeat, Join, Leave, Stop
from islands.protocol.messages.training import ContributionDeclined, Hello, Progress
from islands.protocol.observer import state as observer
from islands.protocol.sessions import Received
from islands.protocol.supervisor import events as supervisor_events
from islands.protocol.syncer import events as syncer_events
from islands.protocol.syncer.plausibility import Check
from islands.protocol.syncer.state import SyncerState
from tests.rounds.model import FakeCompute

CHECKS = {
    "good": Check(schema_ok=True, digest_ok=True, finite=True, norm=1.0),
    "damaged": Check(schema_ok=True, digest_ok=False, finite=True, norm=1.0),
    "not-finite": Check(schema_ok=True, digest_ok=True, finite=False, norm=float("inf")),
}

ToSyncer = Hello | Progress | ContributionDeclined | Leave
ToSupervisor = Join | Heartbeat | Leave | Command | Stop


E_contra = TypeVar("E_contra", contravariant=True)
A = TypeVar("A")


class Handle(Protocol[E_contra, A]):
    """What a role's state does with an event."""

    def __call__(self, event: E_contra, *, now_s: float) -> list[A]: ...


@dataclass(slots=True)
class Syncer:
    """One start of a syncer, its membership, and the names at its links."""

    name: str
    state: SyncerState
    membership: MembershipState
    links: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Peer:
    """Where a process dials, and its link to a syncer: to which, and its number."""

    name: str
    address: str = ""
    cut: bool = False
    link: tuple[str, int] | None = None


@dataclass(slots=True)
class Learner(Peer):
    """`check` is what the syncer will measure on what it contributes."""

    state: LearnerState = field(kw_only=True)
    compute: FakeCompute = field(kw_only=True)
    check: Check = CHECKS["good"]
    tick: object = learner_events.Ticked()


@dataclass(slots=True)
class Observer(Peer):
    """It only watches."""

    state: observer.ObserverState = field(kw_only=True)
    tick: object = observer.Ticked()


@dataclass(frozen=True, slots=True)
class Parcel:
    """Something under way, and what happens when it arrives; `route` names what may be held."""

    route: str
    arrive: Callable[[], None]


def for_supervisor(message: ToSupervisor, connection: int) -> supervisor_events.Event:
    match message:
        case Join():
            returns = message.previous is not None
            return supervisor_events.JoinArrived(message, connection, proven=True, returns=returns)
        case Heartbeat():
            return supervisor_events.HeartbeatArrived(message, connection)
        case Command():
            return supervisor_events.CommandArrived(message, connection, genuine=True)
        case Leave() | Stop():
            return Received(message, connection)


def for_syncer(message: ToSyncer, connection: int, *, fenced: bool) -> syncer_events.Event:
    if isinstance(message, Hello):
        return syncer_events.LinkOpened(message, connection, trusted=True, fenced=fenced)
    return Received(message, connection)
