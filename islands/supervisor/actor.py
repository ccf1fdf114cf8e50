"""The supervisor's actor: performs what `state.py` decides, and turns the world into events."""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from islands.credentials import Credentials
from islands.messages import Heartbeat, Join, Joined, Leave, Stop, SyncerAddress
from islands.ports import Disk, Launcher
from islands.reception import Reception
from islands.role import RoleActor, Surroundings
from islands.slots import Slots, take_epoch
from islands.supervisor.actions import (
    Action,
    FinishRun,
    GiveUp,
    KillProcess,
    Record,
    Send,
    StartProcess,
)
from islands.supervisor.events import (
    Event,
    HeartbeatArrived,
    JoinArrived,
    LeaveArrived,
    LinkClosed,
    ProcessEnded,
    StopArrived,
    Ticked,
)
from islands.supervisor.state import SupervisorState
from messaging.envelope import Envelope
from messaging.link import Link

TICKS_PER_HEARTBEAT = 4


class SupervisorActor(RoleActor[Event]):
    """One start of the supervisor.

    Args:
        name: its name in the run.
        around: where it lives.
        disk: where its epoch lies.
        credentials: to sign admissions.
        launcher: starts and kills processes.
        launched: names of the processes that the launcher knows.
        syncers: addresses of syncers that are known beforehand.
        finished: called with the reason when the run is over.
    """

    def __init__(
        self,
        name: str,
        around: Surroundings,
        *,
        disk: Disk,
        credentials: Credentials,
        launcher: Launcher,
        launched: tuple[str, ...] = (),
        syncers: tuple[SyncerAddress, ...] = (),
        finished: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare; `run` begins."""
        super().__init__(name, around)
        self.state: SupervisorState
        self._disk = disk
        self._credentials = credentials
        self._launcher = launcher
        self._launched = launched
        self._syncers = syncers
        self._finished = finished
        self._reception: Reception | None = None

    async def on_start(self) -> None:
        """Take a new epoch, then let others in."""
        self.state = SupervisorState(
            self.around.settings,
            self.around.layout.fingerprint,
            epoch=take_epoch(Slots(self._disk)),
            launched=self._launched,
            syncers=self._syncers,
            now_s=self.now_s(),
        )
        self.record("started", {"epoch": self.state.epoch})
        listener = self.around.network.listen(self.name)
        self._reception = Reception(listener, self.scope, receive=self._receive, lost=self._lost)
        self._tick_later()

    async def on_message(self, message: Event) -> None:
        """Handle one event and perform what follows."""
        if isinstance(message, Ticked):
            self._tick_later()
        for action in self.state.handle(message, now_s=self.now_s()):
            self._perform(action)

    def release(self) -> None:
        """Let nobody in any more, and close every link."""
        if self._reception is not None:
            self._reception.close("the supervisor ended")

    def process_ended(self, name: str, reason: str) -> None:
        """A process that was launched has ended."""
        self.post(ProcessEnded(name, reason))

    def _tick_later(self) -> None:
        timing = self.around.settings.timing
        delay_s = timing.scaled(timing.heartbeat_s) / TICKS_PER_HEARTBEAT
        self.ref.tell_later(delay_s, Ticked())

    def _perform(self, action: Action) -> None:
        match action:
            case Send(connection, Joined() as joined):
                credential = self._credentials.sign(joined.name, joined.incarnation)
                self.send(self._link(connection), replace(joined, credential=credential))
            case Send(connection, message):
                self.send(self._link(connection), message)
            case StartProcess(name, delay_s):
                self._launcher.start(name, delay_s)
            case KillProcess(name, reason):
                self.record("killed", {"name": name, "reason": reason})
                self._launcher.kill(name)
            case GiveUp(name, reason):
                self._launcher.gave_up(name, reason)
            case Record(kind, fields):
                self.record(kind, fields)
            case FinishRun(reason):
                if self._finished is not None:
                    self._finished(reason)
                self.ref.stop(reason)
            case _:
                assert_never(action)

    # --- links --------------------------------------------------------------------------------

    def _link(self, connection: int) -> Link | None:
        return None if self._reception is None else self._reception.link(connection)

    def _lost(self, connection: int) -> None:
        if not self.ref.stopped:
            self.post(LinkClosed(connection))

    def _receive(self, connection: int, envelope: Envelope) -> None:
        body = envelope.body
        match body:
            case Join():
                self.post(JoinArrived(body, connection))
            case Heartbeat():
                trusted = self._credentials.genuine(body.name, body.incarnation, body.credential)
                self.post(HeartbeatArrived(body, connection, trusted=trusted))
            case Leave():
                self.post(LeaveArrived(body))
            case Stop():
                self.post(StopArrived(body))
            case _:
                self.record("unexpected", {"body": type(body).__name__})
