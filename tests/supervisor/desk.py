"""A supervisor's state at its desk: the test moves its clock and speaks for everybody else."""

from dataclasses import replace
from typing import TypeVar

from islands.protocol.identities import Incarnation, LearnerName, Phase, Role, Status
from islands.protocol.invitations import Invitation
from islands.protocol.messages.control import Command, CommandAnswer, Verb
from islands.protocol.messages.membership import Heartbeat, Join, Joined, Leave, Stop
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.sessions import Received
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.supervisor import events
from islands.protocol.supervisor.actions import Action, KillProcess, Send, StartProcess
from islands.protocol.supervisor.commands import Nonces
from islands.protocol.supervisor.eviction import Restarts
from islands.protocol.supervisor.memory import SupervisorMemory
from islands.protocol.supervisor.state import LEARNERS, SupervisorState
from islands.protocol.tape.entry import Record

FINGERPRINT = "same everywhere"

TIMING = Timing()

T = TypeVar("T")


class Desk:
    """A supervisor with a clock that the test moves, ticking as it goes."""

    def __init__(
        self, *, epoch: int = 1, launched: tuple[str, ...] = (), timing: Timing = TIMING
    ) -> None:
        self.now_s = 0.0
        self.actions: list[Action] = []
        self.evictions = 0
        """As many as the tape tells of."""
        self.proven = True
        """Whether those who join hold the run's key."""
        """Whether those who name an earlier incarnation hold its credential."""
        settings, restarts = (
            RunSettings(run="r", timing=timing),
            {name: Restarts() for name in launched},
        )
        hub, syncers = "ws://hub:7070/supervisor", ("configured",)
        self.state = SupervisorState(
            SupervisorMemory(
                settings,
                FINGERPRINT,
                epoch,
                hub,
                syncers,
                restarts,
                (LEARNERS,),
                0.0,
                Nonces(b"of this start"),
            )
        )

    def handle(self, event: events.Event) -> list[Action]:
        """Handle an event; one more at the same instant that says nothing asks for nothing."""
        actions = self.state.handle(event, now_s=self.now_s)
        assert self.state.handle(events.LinkClosed(-1), now_s=self.now_s) == []
        self.evictions += recorded(actions).count("evicted")
        return actions

    def wait(self, seconds: float, *beats: Heartbeat) -> list[Action]:
        """Let time pass in quarters of a second; who beats does so at each."""
        actions: list[Action] = []
        for _ in range(round(4 * seconds)):
            self.now_s += 0.25
            for beat in beats:
                actions += self.hear(beat)
            actions += self.handle(events.Ticked())
        return actions

    def join(self, name: str = "a", connection: int = 1, **changed: object) -> list[Action]:
        """A process asks for admission, over a link that an `invitation` opened, or the token."""
        invitation = changed.pop("invitation", None)
        assert invitation is None or isinstance(invitation, Invitation)
        join = Join(PROTOCOL, "r", Role.LEARNER, name, FINGERPRINT)
        asked = replace(join, **changed)  # type: ignore[arg-type]
        returns = asked.previous is not None
        return self.handle(events.JoinArrived(asked, connection, self.proven, returns, invitation))

    def admit(self, name: str = "a", connection: int = 1, **changed: object) -> Incarnation:
        (joined,) = sent(self.join(name, connection, **changed), Joined)
        return joined.incarnation

    def revoke(self, name: str) -> list[Action]:
        """An operator's command to revoke; its host performs it, and then it is answered."""
        command = Command(Verb.REVOKE, name, 1, self.state.memory.nonces.issue(self.now_s))
        return self.handle(events.CommandArrived(command, 99, genuine=True))

    def hear(self, beat: Heartbeat, connection: int = 1) -> list[Action]:
        return self.handle(events.HeartbeatArrived(beat, connection))

    def leave(self, name: str, incarnation: Incarnation, reason: str = "done") -> list[Action]:
        return self.handle(Received(Leave(LearnerName(name), incarnation, reason), 0))

    def stop(self, reason: str, connection: int) -> list[Action]:
        return self.handle(Received(Stop(reason), connection))

    def command(
        self,
        verb: Verb,
        target: str = "",
        count: int = 1,
        *,
        genuine: bool = True,
        nonce: str | None = None,
        invitation: Invitation | None = None,
    ) -> CommandAnswer:
        """An operator's command, on a link of its own; the actions are kept."""
        fresh = self.state.memory.nonces.issue(self.now_s) if nonce is None else nonce
        command = Command(verb, target, count, fresh)
        self.actions = self.handle(events.CommandArrived(command, 99, genuine, invitation))
        (answer,) = sent(self.actions, CommandAnswer)
        return answer

    def status(self, name: str = "a") -> Status:
        return self.state.members[name].status


def beat(
    incarnation: Incarnation, name: str = "a", *, step: int = 0, phase: Phase = Phase.STARVED
) -> Heartbeat:
    return Heartbeat(Role.LEARNER, name, incarnation, phase, step)


def syncer_beat(incarnation: Incarnation, *, epoch: int = 1) -> Heartbeat:
    return Heartbeat(Role.SYNCER, "s", incarnation, Phase.STARVED, 0, epoch=epoch)


def sent(actions: list[Action], kind: type[T]) -> list[T]:
    return [
        action.message
        for action in actions
        if isinstance(action, Send) and isinstance(action.message, kind)
    ]


def started(actions: list[Action]) -> list[str]:
    return [action.name for action in actions if isinstance(action, StartProcess)]


def killed(actions: list[Action]) -> list[str]:
    return [action.name for action in actions if isinstance(action, KillProcess)]


def recorded(actions: list[Action]) -> list[str]:
    return [action.entry.kind for action in actions if isinstance(action, Record)]
