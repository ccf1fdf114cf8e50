"""The observer's actor: keeps the newest values, and has them evaluated by its worker."""

import random
from collections.abc import Callable, Sequence
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from islands.errors import RefusedError
from islands.messages import (
    Evicted,
    FragmentUpdate,
    HeartbeatAck,
    Joined,
    Refused,
    Stop,
    Version,
    Welcome,
)
from islands.observer.actions import (
    Action,
    DialSyncer,
    Evaluate,
    Exit,
    Keep,
    ToSupervisor,
    ToSyncer,
)
from islands.observer.events import (
    EvaluationFinished,
    Event,
    SupervisorLinkOpened,
    SyncerLinkChanged,
    Ticked,
    Told,
    UpdateArrived,
)
from islands.observer.state import ObserverState
from islands.ports import Worker
from islands.role import RoleActor, Surroundings
from messaging.dialer import Dialer
from messaging.envelope import Envelope
from messaging.link import Link
from messaging.scope import Scope
from messaging.tensors import digest

Figures = dict[str, float]
EvaluateValues = Callable[[Sequence[NDArray[np.float32]]], Figures]


class ObserverActor(RoleActor[Event]):
    """One observer.

    Args:
        name: unique in the run.
        around: where it lives.
        worker: on which evaluations run.
        evaluate: figures of a model, given one flat value per fragment.
        report: called with the learning-rate clock and the figures of every evaluation.
        interval_s: least time between two evaluations.
        rng: jitter of its dialling.
    """

    def __init__(
        self,
        name: str,
        around: Surroundings,
        *,
        worker: Worker,
        evaluate: EvaluateValues,
        report: Callable[[float, Figures], object],
        interval_s: float,
        rng: random.Random,
    ) -> None:
        """Prepare; `run` begins."""
        super().__init__(name, around)
        layout = around.layout
        self.state = ObserverState(
            around.settings,
            name,
            layout.fingerprint,
            len(layout.fragments),
            interval_s=interval_s,
        )
        self.exit: Exit | None = None
        self._worker = worker
        self._evaluate = evaluate
        self._report = report
        self._rng = rng
        self._scope = Scope(name, self._failed)
        self._failure: BaseException | None = None
        self._supervisor: Dialer | None = None
        self._syncer: Dialer | None = None
        self._syncer_address: str | None = None
        self._arrived: dict[tuple[int, Version], NDArray[np.float32]] = {}
        self._values: dict[int, NDArray[np.float32]] = {}

    async def on_start(self) -> None:
        """Dial the supervisor."""
        self._supervisor = self._dial(self.around.supervisor, supervisor=True)
        self._tick_later()

    async def on_message(self, message: Event) -> None:
        """Handle one event and perform what follows."""
        if isinstance(message, Ticked):
            self._tick_later()
        for action in self.state.handle(message, now_s=self.now_s()):
            self._perform(action)
        if isinstance(message, UpdateArrived):
            self._arrived.pop((int(message.message.fragment), message.message.version), None)

    async def on_stop(self, reason: str) -> None:
        """End what was started."""
        await self.kill()
        if self._failure is not None:
            raise self._failure
        if self.exit is not None and self.exit.failed:
            raise RefusedError(self.exit.reason)

    async def on_failure(self, error: BaseException) -> None:
        """End what was started; the error is raised from `run`."""
        self.record("failed", {"error": repr(error)})
        await self.kill()

    async def kill(self) -> None:
        """Die as a process dies: nothing is said to anybody."""
        self._worker.close()
        await self._scope.close()

    def _failed(self, name: str, error: BaseException) -> None:
        self._failure = error
        self.ref.stop(f"{name} failed: {error!r}")

    def _tick_later(self) -> None:
        timing = self.around.settings.timing
        self.ref.tell_later(timing.scaled(timing.heartbeat_s), Ticked())

    def _perform(self, action: Action) -> None:
        match action:
            case ToSupervisor(message):
                self.send(self._link(self._supervisor), message)
            case ToSyncer(message):
                self.send(self._link(self._syncer), message)
            case DialSyncer(address):
                if address != self._syncer_address:
                    if self._syncer is not None:
                        self._syncer.stop("the syncer moved")
                    self._syncer_address = address
                    self._syncer = self._dial(address, supervisor=False)
            case Keep(message):
                key = (int(message.fragment), message.version)
                self._values[message.fragment] = self._arrived[key]
            case Evaluate(_, clock):
                values = [self._values[index] for index in sorted(self._values)]
                self._worker.submit(
                    lambda: self._evaluate(values), lambda found: self._evaluated(clock, found)
                )
            case Exit(reason):
                self.exit = action
                self.ref.stop(reason)
            case _:
                assert_never(action)

    def _evaluated(self, clock: float, figures: Figures) -> None:
        self._report(clock, figures)
        self.post(EvaluationFinished())

    @staticmethod
    def _link(dialer: Dialer | None) -> Link | None:
        return None if dialer is None else dialer.link

    def _dial(self, address: str, *, supervisor: bool) -> Dialer:
        def opened(_: Link) -> None:
            self.post(SupervisorLinkOpened() if supervisor else SyncerLinkChanged(up=True))

        def closed(_: Link, __: str) -> None:
            if not supervisor:
                self.post(SyncerLinkChanged(up=False))

        dialer = Dialer(
            self.around.network,
            address,
            local=self.name,
            on_open=opened,
            on_envelope=lambda _, envelope: self._receive(envelope),
            on_close=closed,
            rng=self._rng,
            settings=self.around.dialling,
        )
        self._scope.spawn(dialer.run(), address)
        return dialer

    def _receive(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, FragmentUpdate):
            self._check(body, envelope.payload)
        elif isinstance(body, Joined | Refused | Evicted | HeartbeatAck | Stop | Welcome):
            self.post(Told(body))

    def _check(self, update: FragmentUpdate, payload: tuple[memoryview, ...]) -> None:
        fragments = self.around.layout.fragments
        if not 0 <= update.fragment < len(fragments) or len(payload) != 1:
            return
        if payload[0].nbytes != 4 * fragments[update.fragment].size:
            return

        def arrive(computed: str) -> None:
            intact = computed == update.digest
            if intact:
                key = (int(update.fragment), update.version)
                self._arrived[key] = np.frombuffer(payload[0], np.float32)
            self.post(UpdateArrived(update, intact=intact))

        self._worker.submit(lambda: digest(payload[0]), arrive)
