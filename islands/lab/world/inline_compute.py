"""The engine on an asyncio loop, usually on the virtual clock.

The arithmetic is done while virtual time stands still, and a cost model says how long it took.
Batches are read when they are needed, which takes no time either.
"""

import asyncio
from collections.abc import Callable
from math import isfinite

from islands.learner.boundary import EngineEvent, PendingPiece, PendingSnapshot
from islands.learner.commands import enqueue
from islands.learner.compute import Post, StepReport, idled, made, nobody
from islands.learner.copying import SnapshotCopies
from islands.learner.engine import Engine, Running
from islands.model.interfaces import Trainer
from islands.protocol.identities import FragmentIndex
from islands.protocol.learner.actions import EngineAction
from islands.protocol.learner.events import StepFinished, TrainerReady
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.batch_source import ASKED_AGAIN_S


class InlineCompute:
    """The engine on an asyncio loop, usually a virtual one.

    Args:
        trainer: does the arithmetic, while the loop's time stands still.
        settings: settings of the run.
        step_s: called before each step; returns how many seconds of the loop's time it takes.
        setup_s: seconds that building and compiling take.
        copy_s: called for each snapshot; returns the seconds that its copy to the host takes, once
            the copies before it have arrived.
    """

    def __init__(
        self,
        trainer: Trainer,
        settings: RunSettings,
        *,
        step_s: Callable[[], float],
        setup_s: float = 0.0,
        copy_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._copies = SnapshotCopies()
        self._engine = Engine(
            trainer,
            settings,
            report=self._report,
            copier=self,
        )
        self._step_s = step_s
        self._setup_s = setup_s
        self._copy_s = copy_s
        self._copied_s = 0.0
        self._post: Post = nobody
        self._running: Running | None = None
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._stopped = False
        self._why = (False, False)  # it stands still, as was reported last
        self._ready = False

    @property
    def compiling(self) -> bool:
        """Always False: compilation takes none of the loop's time."""
        return False

    def start(self, post: Post) -> None:
        """Begin to work after the set-up time."""
        self._post = post
        self._timer = asyncio.get_running_loop().call_later(self._setup_s, self._set_up)
        post(made(self._engine.trainer))

    def command(self, command: EngineAction) -> None:
        enqueue(self._engine.boundary.commands, command)
        self._wake()

    def stop(self) -> None:
        """Stop at once."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _set_up(self) -> None:
        self._timer, self._ready = None, True
        self._engine.trainer.setup()
        batch = self._engine.probe_batch()
        self._post(TrainerReady(self._engine.trainer.tokens(batch)))
        self._wake()

    def _wake(self) -> None:
        if self._ready and not self._stopped and self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._boundary, None)

    def _boundary(self, finished: StepReport | None) -> None:
        """Work at a boundary; as on a device, the next step starts before the last is reported."""
        self._timer = None
        allowed = self._engine.boundary.carry_out()
        working = not self._stopped and self._engine.has_work()
        if working:
            duration_s = self._step_s()
            self._running = self._engine.dispatch()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(duration_s, self._finish, duration_s)
        if finished is not None:
            self._post(finished)
        if self._stopped:
            return
        why = (self._engine.waiting, self._engine.late)
        if not working and (finished is not None or allowed or why != self._why):
            self._post(idled(self._engine))
            self._why = why
        if self._engine.boundary.unread:
            self._wake()
        if not working and self._engine.awaits_data and self._asking is None:
            loop = asyncio.get_running_loop()
            self._asking = loop.call_later(ASKED_AGAIN_S, self._ask_again)

    def _ask_again(self) -> None:
        """Look for data that may have arrived."""
        self._asking = None
        self._wake()

    def _finish(self, duration_s: float) -> None:
        running = self._running
        assert running is not None, "a step is finished once"
        self._running, self._timer = None, None
        loss = running.pending.loss()
        event = StepFinished(
            running.steps, running.tokens, duration_s, isfinite(loss), running.leases
        )
        self._boundary(StepReport(event, loss, 0.0, 0.0, running.pending.metrics()))

    def _report(self, event: EngineEvent) -> None:
        self._post(event)

    def may_begin(self, fragment: FragmentIndex, steps: int) -> bool:
        return self._copies.may_begin(fragment, steps)

    def await_snapshot(self, taken: PendingSnapshot) -> None:
        """Time a copy to the host: copies are done one after another, as over a device's link."""
        loop, duration_s = asyncio.get_running_loop(), self._copy_s()
        began_s = max(loop.time(), self._copied_s)
        self._copied_s = began_s + duration_s
        self._copies.begin(taken.fragment, taken.steps)
        if self._copied_s <= loop.time():
            self._copied(taken)
        else:
            loop.call_at(self._copied_s, self._copied_later, taken)

    def _copied(self, taken: PendingSnapshot) -> None:
        self._copies.arrive(taken.fragment)
        self._post(taken.on_host())

    def _copied_later(self, taken: PendingSnapshot) -> None:
        if not self._stopped:
            self._copied(taken)
            self._wake()  # an idle boundary may now take a snapshot that had no room

    def await_piece(self, taken: PendingPiece) -> None:
        """Report a piece of moments at once: its copy takes none of the loop's time."""
        self._post(taken.on_host())
