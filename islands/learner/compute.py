"""The two drivers of the engine: a thread that owns a device, or the virtual clock.

`ComputeThread` dispatches step t+1 before it waits for step t, so the device never waits for
Python. A second thread waits for snapshots, off the step's critical path. Both drivers report by
events, which they post to the learner's actor.

`InlineCompute` runs the same engine without a thread: the arithmetic is done while virtual time
stands still, and a cost model says how long it took.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

from islands.errors import IslandsError, TaskError
from islands.identities import FragmentIndex
from islands.learner.actions import EngineAction
from islands.learner.engine import (
    Engine,
    EngineEvent,
    PendingPiece,
    PendingSnapshot,
    Running,
    enqueue,
)
from islands.learner.events import (
    Idled,
    MomentsRead,
    SnapshotTaken,
    StepFinished,
    TrainerMade,
    TrainerReady,
)
from islands.learner.moments_checkpoint import CheckpointFile, CheckpointWriter
from islands.learner.snapshot_copies import SnapshotCopies
from islands.settings.run import RunSettings
from islands.training.source_location import task_error, task_failure
from islands.training.trainer import Trainer
from messaging.clock import Clock, MonotonicClock

FIRST_STEPS_COMPILE = 1
"""First steps whose time is not reported, because it may contain compilation."""

STAYS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors of a wrong path: they recur at every start."""

NO_ROOM = "RESOURCE_EXHAUSTED"
"""XLA's error code when a device's memory is exhausted."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """A finished step with the figures that only the metrics need.

    `gap_s` is an upper bound of the time in which the device had nothing to do before the next
    step was dispatched, without `data_wait_s`, the time spent on getting the batch.
    """

    event: StepFinished
    loss: float
    gap_s: float
    data_wait_s: float


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A write of moments to this host's disk has ended; `error` is empty if it succeeded."""

    error: str


@dataclass(frozen=True, slots=True)
class ComputeFailed:
    """The trainer raised an error, so the learner cannot go on."""

    error: Exception


ComputeEvent = (
    TrainerMade
    | TrainerReady
    | StepReport
    | Idled
    | SnapshotTaken
    | MomentsRead
    | EngineEvent
    | CheckpointWritten
    | ComputeFailed
)
Post = Callable[[ComputeEvent], object]


class Compute(Protocol):
    """The interface through which a learner's actor drives its device."""

    @property
    def compiling(self) -> bool:
        """Whether the device's thread compiles at this moment, which makes a step take long."""

    def start(self, post: Post) -> None:
        """Build and compile, then obey commands; report through `post` on the actor's loop."""

    def command(self, command: EngineAction) -> None:
        """Queue a command for the next step boundary."""

    def stop(self) -> None:
        """Stop at the next boundary, without another report."""


class ComputeThread:
    """The one thread that owns a device.

    Args:
        make_trainer: builds the trainer; called on that thread.
        settings: settings of the run.
        name: the learner's name, which its threads carry.
        kept: file that keeps the moments for a later process of this name; None to keep none.
    """

    def __init__(
        self,
        make_trainer: Callable[[], Trainer],
        settings: RunSettings,
        name: str,
        kept: CheckpointFile | None = None,
    ) -> None:
        """Prepare; `start` begins the work."""
        self._make_trainer = make_trainer
        self._settings = settings
        self._clock: Clock = MonotonicClock()
        self._wake = threading.Condition()
        self._inbox: list[EngineAction] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"compute-{name}", daemon=True)
        self._copier = ThreadPoolExecutor(1, thread_name_prefix=f"copy-{name}")
        self._copies = SnapshotCopies()
        self._copied = False
        self._kept = kept
        self._keeper: CheckpointWriter | None = None
        self._trainer: Trainer | None = None
        self._post: Post = _nobody
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def compiling(self) -> bool:
        """Whether the trainer compiles at this moment; called from the loop's thread."""
        return self._trainer is not None and self._trainer.compiling

    def start(self, post: Post) -> None:
        """Start the thread."""
        self._post = post
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def command(self, command: EngineAction) -> None:
        """Hand a command to the thread; never waits for the device."""
        with self._wake:
            enqueue(self._inbox, command)
            self._wake.notify()

    def stop(self) -> None:
        """Ask the thread to end, which it does at its next boundary."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; returns whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _tell(self, event: ComputeEvent) -> None:
        loop = self._loop
        if loop is not None and not self._stopping and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._post, event)
            except RuntimeError:  # the loop closed between the check and the call
                self._stopping = True

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  the actor reports it and ends the process
            self._tell(ComputeFailed(task_failure(error, "the task failed while it trained")))
        finally:
            self._copier.shutdown(wait=False)
            if self._keeper is not None:
                self._keeper.abandon()

    def _work(self) -> None:
        engine = self._set_up()
        keeper = self._keeper = self._make_keeper()
        running: Running | None = None
        ready_s = self._clock.now_s()
        while not self._stopping:  # each turn is one boundary
            self._take_commands(engine)
            allowed = engine.boundary()
            if keeper is not None:
                keeper.at_boundary(engine.trainer, engine.versions, engine.steps, engine.resets)
            before_data_s = self._clock.now_s()
            if engine.has_work():
                data_wait_s = self._clock.now_s() - before_data_s
                drained = running is not None and running.pending.ready()
                gap_s = self._clock.now_s() - ready_s - data_wait_s if drained else 0.0
                following = engine.dispatch()
                if running is not None:
                    ready_s = self._finish(running, ready_s, gap_s, data_wait_s)
                else:
                    ready_s = self._clock.now_s()
                running = following
                continue
            if running is not None:
                ready_s = self._finish(running, ready_s, 0.0, 0.0)
                running, allowed = None, True
            if allowed:
                self._tell(idled(engine))
            self._sleep(engine)
        if keeper is not None:
            keeper.at_the_end(engine.trainer, engine.versions, engine.steps)

    def _make_keeper(self) -> CheckpointWriter | None:
        if self._kept is None:
            return None
        return CheckpointWriter(
            self._kept, self._clock, lambda error: self._tell(CheckpointWritten(error))
        )

    def _set_up(self) -> Engine:
        """Build and compile; an error here recurs at every start, so the user must mend it.

        The exception is a device or a host that has no memory yet, for instance because its last
        process was killed just now: this ends the process like any failure, so it is restarted.
        """
        try:
            engine = Engine(
                self._make_trainer(),
                self._settings,
                report=self._tell,
                snapshot_taken=self._copy,
                piece_taken=self._copy_piece,
                may_snapshot=self._may_copy,
            )
            self._tell(made(engine.trainer))
            self._trainer = engine.trainer
            engine.trainer.setup()
            finite = engine.trainer.finite()
            batch_tokens = engine.trainer.tokens(engine.probe_batch())
        except IslandsError:
            raise
        except StopIteration as error:
            raise TaskError("the task has no batch in any shard of its data") from error
        except Exception as error:
            if _may_pass(error):
                raise
            raise task_error(error, "the task fails before its first step") from error
        if not finite:
            raise TaskError("the task's initial parameters are not all finite numbers")
        self._tell(TrainerReady(batch_tokens))
        self._copier.submit(self._prepare_giving, engine.trainer)
        return engine

    def _prepare_giving(self, trainer: Trainer) -> None:
        try:
            trainer.prepare_giving()
        except Exception as error:  # noqa: BLE001  the actor reports it and ends the process
            self._tell(ComputeFailed(error))

    def _take_commands(self, engine: Engine) -> None:
        with self._wake:
            inbox, self._inbox = self._inbox, []
        for command in inbox:
            enqueue(engine.commands, command)

    def _sleep(self, engine: Engine) -> None:
        """Wait until there is something to do at a boundary."""
        with self._wake:
            while not (self._inbox or self._stopping or self._copied or engine.unread):
                self._wake.wait()
            self._copied = False

    def _finish(self, running: Running, before_s: float, gap_s: float, data_wait_s: float) -> float:
        """Wait for a step and report it; returns the time at which it was ready."""
        loss = running.pending.loss()
        now_s = self._clock.now_s()
        step_time_s = now_s - before_s if running.steps > FIRST_STEPS_COMPILE else 0.0
        event = StepFinished(
            running.steps, running.tokens, step_time_s, isfinite(loss), running.leases
        )
        self._tell(StepReport(event, loss, gap_s, data_wait_s))
        return now_s

    def _copy(self, taken: PendingSnapshot) -> None:
        """Have the copying thread wait for a snapshot."""
        with self._wake:
            self._copies.begin(taken.fragment, taken.steps)
        self._copier.submit(self._await_copy, taken)

    def _may_copy(self, fragment: FragmentIndex, steps: int) -> bool:
        """Whether a further snapshot of a fragment may begin, given those still being copied."""
        with self._wake:
            return self._copies.may_begin(fragment, steps) and not self._stopping

    def _await_copy(self, taken: PendingSnapshot) -> None:
        try:
            buffer = taken.snapshot.buffer()
        except Exception as error:  # noqa: BLE001  the actor reports it and ends the process
            self._tell(ComputeFailed(error))
            return
        with self._wake:
            self._copies.arrive(taken.fragment)
            self._copied = True  # an idle boundary may now take a snapshot that had no room
            self._wake.notify()
        self._tell(SnapshotTaken(taken.fragment, taken.base, taken.steps, taken.tokens, buffer))

    def _copy_piece(self, taken: PendingPiece) -> None:
        """Have the copying thread wait for a piece of moments."""
        self._copier.submit(self._await_piece, taken)

    def _await_piece(self, taken: PendingPiece) -> None:
        try:
            buffer = taken.snapshot.buffer()
        except Exception as error:  # noqa: BLE001  the actor reports it and ends the process
            self._tell(ComputeFailed(error))
            return
        self._tell(MomentsRead(taken.piece, taken.asker, buffer))


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
        """Prepare; `start` begins the work."""
        self._copies = SnapshotCopies()
        self._engine = Engine(
            trainer,
            settings,
            report=self._report,
            snapshot_taken=self._snapshot_taken,
            piece_taken=self._piece_taken,
            may_snapshot=self._copies.may_begin,
        )
        self._step_s = step_s
        self._setup_s = setup_s
        self._copy_s = copy_s
        self._copied_s = 0.0
        self._post: Post = _nobody
        self._running: Running | None = None
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._stopped = False
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
        """Carry out a command at the next boundary, or at once if no step is running."""
        enqueue(self._engine.commands, command)
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
        allowed = self._engine.boundary()
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
        if not working and (finished is not None or allowed):
            self._post(idled(self._engine))
        if self._engine.unread:
            self._wake()

    def _finish(self, duration_s: float) -> None:
        running = self._running
        assert running is not None, "a step is finished once"
        self._running, self._timer = None, None
        loss = running.pending.loss()
        event = StepFinished(
            running.steps, running.tokens, duration_s, isfinite(loss), running.leases
        )
        self._boundary(StepReport(event, loss, 0.0, 0.0))

    def _report(self, event: EngineEvent) -> None:
        self._post(event)

    def _snapshot_taken(self, taken: PendingSnapshot) -> None:
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
        self._post(
            SnapshotTaken(
                taken.fragment, taken.base, taken.steps, taken.tokens, taken.snapshot.buffer()
            )
        )

    def _copied_later(self, taken: PendingSnapshot) -> None:
        if not self._stopped:
            self._copied(taken)
            self._wake()  # an idle boundary may now take a snapshot that had no room

    def _piece_taken(self, taken: PendingPiece) -> None:
        self._post(MomentsRead(taken.piece, taken.asker, taken.snapshot.buffer()))


def made(trainer: Trainer) -> TrainerMade:
    """The event that tells what is known of a trainer before it has compiled."""
    return TrainerMade(trainer.moments_schema, trainer.moment_pieces)


def idled(engine: Engine) -> Idled:
    """The event that tells that an engine stands still, and why."""
    return Idled(engine.steps, engine.tokens, engine.leases, engine.order, engine.waiting)


def _may_pass(error: Exception) -> bool:
    """Whether an error at the start may not recur at the next start."""
    return isinstance(error, MemoryError) or (
        not isinstance(error, STAYS)
        if isinstance(error, OSError)
        else isinstance(error, RuntimeError) and NO_ROOM in str(error)
    )


def _nobody(_: ComputeEvent) -> None:
    """Discard an event, since no actor has started this compute."""
