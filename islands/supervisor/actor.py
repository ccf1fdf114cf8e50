"""The supervisor's actor: performs what `state.py` decides, and turns the world into events."""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from islands.credentials import Credentials
from islands.messages import Heartbeat, Join, Joined, Leave, Stop, SyncerAddress
from islands.ports import Disk, Launcher
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
from messaging.errors import LinkClosed as LinkLost
from messaging.link import Link, Listener
from messaging.scope import Scope

TICKS_PER_HEARTBEAT = 4


class SupervisorActor(RoleActor[Event]):
    """One start of the supervisor.

    Args:
        name: its name in the run.
        around: where it lives; it listens at `around.supervisor`.
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
        self._scope = Scope(name, self._failed)
        self._failure: BaseException | None = None
        self._links: dict[int, Link] = {}
        self._connections = 0
        self._listener: Listener | None = None

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
        self._listener = self.around.network.listen(self.around.supervisor)
        self._scope.spawn(self._accept(self._listener), "accept")
        self._tick_later()

    async def on_message(self, message: Event) -> None:
        """Handle one event and perform what follows."""
        if isinstance(message, Ticked):
            self._tick_later()
        for action in self.state.handle(message, now_s=self.now_s()):
            self._perform(action)

    async def on_stop(self, reason: str) -> None:
        """End what was started."""
        await self.kill()
        if self._failure is not None:
            raise self._failure

    async def on_failure(self, error: BaseException) -> None:
        """End what was started; the error is raised from `run`."""
        self.record("failed", {"error": repr(error)})
        await self.kill()

    async def kill(self) -> None:
        """Die as a process dies: nothing is said to anybody."""
        if self._listener is not None:
            self._listener.close()
        for connection in sorted(self._links):  # their readers forget them when the scope closes
            self._links[connection].close("the supervisor ended")
        await self._scope.close()

    def process_ended(self, name: str, reason: str) -> None:
        """A process that was launched has ended."""
        self.post(ProcessEnded(name, reason))

    def _failed(self, name: str, error: BaseException) -> None:
        self._failure = error
        self.ref.stop(f"{name} failed: {error!r}")

    def _tick_later(self) -> None:
        timing = self.around.settings.timing
        delay_s = timing.scaled(timing.heartbeat_s) / TICKS_PER_HEARTBEAT
        self.ref.tell_later(delay_s, Ticked())

    def _perform(self, action: Action) -> None:
        match action:
            case Send(connection, Joined() as joined):
                credential = self._credentials.sign(joined.name, joined.incarnation)
                self.send(self._links.get(connection), replace(joined, credential=credential))
            case Send(connection, message):
                self.send(self._links.get(connection), message)
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

    async def _accept(self, listener: Listener) -> None:
        while True:  # until the listener closes
            try:
                link = await listener.accept()
            except LinkLost:
                return
            self._connections += 1
            self._links[self._connections] = link
            self._scope.spawn(self._read(self._connections, link), f"link-{self._connections}")

    async def _read(self, connection: int, link: Link) -> None:
        try:
            while True:  # until the link is lost
                self._receive(connection, await link.receive())
        except LinkLost:
            pass
        finally:
            self._links.pop(connection, None)
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
