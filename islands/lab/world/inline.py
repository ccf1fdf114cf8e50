"""A learner's compute and a worker on an asyncio loop, usually on the virtual clock."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from islands.learner.boundary import (
    Boundary,
    EngineEvent,
    PendingPiece,
    PendingSnapshot,
    Running,
    TrainerData,
)
from islands.learner.compute import Post, SnapshotCopies, StepReport, enqueue, made, nobody
from islands.model.interfaces import Trainer, first_pass
from islands.protocol.identities import FragmentIndex
from islands.protocol.learner.actions import EngineAction
from islands.protocol.learner.events import TrainerReady
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.batch_source import ASKED_AGAIN_S

T = TypeVar("T")


class InlineCompute:
    """The compute of a learner, which does its arithmetic and reads batches in no time.

    Building takes `setup_s` of the loop's seconds, each step its `step_s()`, and each snapshot's
    copy to the host `copy_s()`, once the copies before it have arrived.
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
        self._trainer, self._settings = trainer, settings
        self._data = TrainerData(trainer)
        self._boundary = Boundary(trainer, settings, self._data, report=self._report, copier=self)
        self._step_s = step_s
        self._setup_s = setup_s
        self._copy_s = copy_s
        self._copied_s = 0.0
        self._post: Post = nobody
        self._running: Running | None = None
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._stopped = False
        self._ready = False

    @property
    def compiling(self) -> bool:
        return False

    def start(self, post: Post) -> None:
        self._post = post
        self._timer = asyncio.get_running_loop().call_later(self._setup_s, self._set_up)
        post(made(self._trainer))

    def command(self, command: EngineAction) -> None:
        enqueue(self._boundary.commands, command)
        self._wake()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _set_up(self) -> None:
        self._timer, self._ready = None, True
        self._trainer.setup()
        self._post(TrainerReady(self._trainer.tokens(next(first_pass(self._trainer)))))
        self._wake()

    def _wake(self) -> None:
        if self._ready and not self._stopped and self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._arrive, None)

    def _arrive(self, finished: StepReport | None) -> None:
        """Work at a boundary; as on a device, the next step starts before the last is reported."""
        self._timer = None
        self._boundary.carry_out()
        working = not self._stopped and self._boundary.has_work()
        if working:
            duration_s = self._step_s()
            rate = self._settings.learning_rate_at(self._boundary.clock)
            self._running = self._boundary.stepped(self._trainer.step(self._data.take(), rate))
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(duration_s, self._finish, duration_s)
        if finished is not None:
            self._post(finished)
        if self._stopped:
            return
        idled = None if working else self._boundary.idled()
        if idled is not None:
            self._post(idled)
        if self._boundary.unread:
            self._wake()
        if not working and self._data.expecting and self._asking is None:
            loop = asyncio.get_running_loop()
            self._asking = loop.call_later(ASKED_AGAIN_S, self._ask_again)

    def _ask_again(self) -> None:
        self._asking = None
        self._wake()

    def _finish(self, duration_s: float) -> None:
        running = self._running
        assert running is not None, "a step is finished once"
        self._running, self._timer = None, None
        self._arrive(StepReport.of(running, running.step.loss(), duration_s, 0.0, 0.0))

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


class InlineWorker:
    """A worker on a virtual clock: pieces begin in order, run at once, and end after `cost_s`.

    `begin` is called before each piece, and `complete` before its `done`: in between, the syncs of
    a simulated disk last.
    """

    def __init__(
        self,
        cost_s: Callable[[], float],
        begin: Callable[[], object] = lambda: None,
        complete: Callable[[], object] = lambda: None,
        *,
        places: int = 1,
    ) -> None:
        self._places = places
        self._cost_s = cost_s
        self._begin = begin
        self._complete = complete
        self._queue: deque[Callable[[], None]] = deque()
        self._begun: dict[int, asyncio.TimerHandle | None] = {}
        self._pieces = 0
        self._closed = False

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        self._pieces += 1
        number = self._pieces

        def run() -> None:
            self._begun[number] = None
            self._begin()
            result = work()
            cost_s = self._cost_s()
            loop = asyncio.get_running_loop()
            self._begun[number] = loop.call_later(cost_s, finish, result)

        def finish(result: T) -> None:
            del self._begun[number]
            self._complete()
            done(result)
            self._next()

        if not self._closed:
            self._queue.append(run)
            self._next()

    def _next(self) -> None:
        while self._queue and len(self._begun) < self._places and not self._closed:
            self._queue.popleft()()

    def close(self) -> None:
        """Accept no more work, and abandon what is not complete, as when the host dies."""
        self._closed = True
        for timer in self._begun.values():
            if timer is not None:
                timer.cancel()
