"""The interface of compute, its events, and the thread that owns a device.

`ComputeThread` dispatches step t+1 before it waits for step t, so the device never waits for
Python. A second thread waits for snapshots, and a third one reads batches, off the step's critical
path. It reports by events, which it posts to the actor. `islands.lab.world.inline_compute`
drives the same engine on the virtual clock.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Protocol

from islands.learner.boundary import EngineEvent
from islands.learner.commands import STEPPING, BookCopy, Commands, LocalCommands, enqueue
from islands.learner.copying import CopyThread
from islands.learner.engine import Engine, Running
from islands.learner.moments import CheckpointFile, CheckpointWriter
from islands.model.interfaces import Model, Trainer
from islands.model.memory_faults import compute_failure, lacks_memory
from islands.protocol.errors import IslandsError, TaskError
from islands.protocol.learner import events
from islands.protocol.learner.actions import EngineAction
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.batch_source import ReadAhead
from islands.tasks.source_location import task_error
from messaging.clock import Clock, MonotonicClock

FIRST_STEPS_COMPILE = 1
"""First steps whose time is not reported, because it may contain compilation."""

STARVED_AFTER_S = 1.0
"""A device that has waited for data for so long is reported to be without work."""

STAYS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors of a wrong path: they recur at every start."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """A finished step with the figures that only the metrics need.

    `gap_s` is an upper bound of the time in which the device had nothing to do before the next
    step was dispatched. `data_wait_s` is the time before it in which there was nothing to do, as no
    batch had been read yet; it is part of neither `gap_s` nor the step's time. `loss` is None if
    the loop that took the step does not tell it. `metrics` are what else the step reports, by name.
    """

    event: events.StepFinished
    loss: float | None
    gap_s: float
    data_wait_s: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A write of moments to this host's disk has ended; `error` is empty if it succeeded."""

    error: str


@dataclass(frozen=True, slots=True)
class ComputeFailed:
    """The trainer raised an error, so the learner cannot go on."""

    error: Exception


ComputeEvent = (
    events.TrainerMade
    | events.TrainerReady
    | StepReport
    | events.Idled
    | events.SnapshotTaken
    | events.MomentsRead
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


class Outlet:
    """Posts events from any thread to the actor, on the loop on which it was opened."""

    def __init__(self) -> None:
        self._post: Post = nobody
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, post: Post) -> None:
        """Post from now on; called on the actor's loop."""
        self._post, self._loop = post, asyncio.get_running_loop()

    def close(self) -> None:
        """Discard reports from now on."""
        self._loop = None

    def report(self, event: ComputeEvent) -> None:
        """Post an event, unless the outlet or the loop is closed."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # the loop closed between the check and the call
                loop.call_soon_threadsafe(self._post, event)


class ComputeThread:
    """The one thread that owns a device.

    Args:
        make_trainer: builds the trainer; called on that thread.
        settings: settings of the run.
        name: the learner's name, which its threads carry.
        kept: file that keeps the moments for a later process of this name; None to keep none.
        commands: where commands wait for their boundary; by default on this host alone.
    """

    def __init__(
        self,
        make_trainer: Callable[[], Trainer],
        settings: RunSettings,
        name: str,
        kept: CheckpointFile | None = None,
        commands: Commands | None = None,
    ) -> None:
        self._make_trainer = make_trainer
        self._settings = settings
        self._clock: Clock = MonotonicClock()
        self._commands = commands or LocalCommands()
        self._thread = threading.Thread(target=self._run, name=f"compute-{name}", daemon=True)
        self._outlet = Outlet()
        self._copier = CopyThread(
            name,
            report=self._outlet.report,
            failed=self._copy_failed,
            room=self._commands.wake,
            books=not self._commands.agreed,
        )
        self._reader: ReadAhead | None = None
        self._name = name
        self._kept = kept
        self._keeper: CheckpointWriter | None = None
        self._trainer: Trainer | None = None

    @property
    def compiling(self) -> bool:
        """Whether the trainer compiles at this moment; called from the loop's thread."""
        return self._trainer is not None and self._trainer.compiling

    @property
    def model(self) -> Model | None:
        """The trainer's model; None until it was made."""
        return self._trainer

    def start(self, post: Post) -> None:
        self._outlet.open(post)
        self._thread.start()

    def command(self, command: EngineAction) -> None:
        """Hand a command to the thread; never waits for the device."""
        self._commands.put(command)

    def stop(self) -> None:
        """Ask the thread to end, which it does at its next boundary."""
        self._outlet.close()
        self._commands.stop()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  the actor reports it and ends the process
            layout = None if self._trainer is None else self._trainer.layout
            self._outlet.report(ComputeFailed(compute_failure(error, layout)))
        finally:
            self._copier.close()
            if self._reader is not None:
                self._reader.close()
            if self._keeper is not None:
                self._keeper.abandon()

    def _work(self) -> None:
        engine = self._set_up()
        keeper = self._keeper = self._make_keeper()
        running: Running | None = None
        ready_s = self._clock.now_s()
        owed, data_wait_s = False, 0.0  # whether an `AllowSteps` has no answer yet
        why = (False, False)  # it stands still, as was reported last
        while not self._commands.ended:  # each turn is one boundary
            if not self._take_commands(engine):
                break
            owed |= engine.boundary.carry_out()
            if keeper is not None:
                keeper.at_boundary(
                    engine.trainer,
                    engine.boundary.versions,
                    engine.boundary.steps,
                    engine.boundary.resets,
                )
            if engine.has_work():
                drained = running is not None and running.pending.ready()
                begun_s = self._clock.now_s()
                gap_s = begun_s - ready_s if drained else 0.0
                following = engine.dispatch()  # a device that is the host may take the step here
                if running is not None:
                    ready_s = self._finish(running, ready_s, gap_s, data_wait_s)
                    data_wait_s = 0.0
                else:
                    ready_s = begun_s
                running, owed, why = following, False, (False, False)
                continue
            if running is not None:
                ready_s = self._finish(running, ready_s, 0.0, data_wait_s)
                running, owed, data_wait_s = None, True, 0.0
            patient = engine.late and self._clock.now_s() - ready_s < STARVED_AFTER_S
            if (owed or why != (engine.waiting, engine.late)) and not patient:
                self._outlet.report(idled(engine))
                owed, why = False, (engine.waiting, engine.late)
            data_wait_s += self._sleep(engine, STARVED_AFTER_S if patient else None)
        if keeper is not None:
            keeper.at_the_end(engine.trainer, engine.boundary.versions, engine.boundary.steps)

    def _make_reader(self, trainer: Trainer) -> ReadAhead:
        """Make what reads batches ahead; hosts that agree wait for each of them."""
        commands = self._commands

        def waits(what: str) -> None:
            commands.doing = what or STEPPING

        told = waits if commands.agreed else None
        return ReadAhead(trainer.batches, f"read-{self._name}", commands.wake, told)

    def _make_keeper(self) -> CheckpointWriter | None:
        if self._kept is None:
            return None
        return CheckpointWriter(
            self._kept, self._clock, lambda error: self._outlet.report(CheckpointWritten(error))
        )

    def _set_up(self) -> Engine:
        """Build and compile; an error here recurs at every start, so the user must mend it.

        The exception is a device or a host that has no memory yet, for instance because its last
        process was killed just now: this ends the process like any failure, so it is restarted.
        """
        try:
            trainer = self._make_trainer()
            reader = self._reader = self._make_reader(trainer)
            engine = Engine(
                trainer,
                self._settings,
                report=self._outlet.report,
                copier=self._copier,
                source=reader,
            )
            self._trainer = engine.trainer
            self._outlet.report(made(engine.trainer))
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
        self._outlet.report(events.TrainerReady(batch_tokens))
        if self._commands.agreed:  # compilers of several hosts may talk to one another
            engine.trainer.prepare_giving()
        else:
            self._copier.submit(engine.trainer.prepare_giving)
        return engine

    def _take_commands(self, engine: Engine) -> bool:
        """Take what this boundary carries out; returns False if it was the last one."""
        for command in self._commands.take(engine.boundary.steps):
            if isinstance(command, BookCopy):
                self._copier.book(command.fragment)
            else:
                enqueue(engine.boundary.commands, command)
        return not self._commands.ended

    def _sleep(self, engine: Engine, limit_s: float | None) -> float:
        """Wait until there is something to do at a boundary, or for so long at most.

        Returns:
            The seconds that were spent on waiting for data.
        """
        awaited, began_s = engine.awaits_data, self._clock.now_s()
        if not engine.boundary.unread:
            self._commands.sleep(limit_s)
        return self._clock.now_s() - began_s if awaited else 0.0

    def _copy_failed(self, error: Exception) -> None:
        self._outlet.report(ComputeFailed(error))

    def _finish(self, running: Running, before_s: float, gap_s: float, data_wait_s: float) -> float:
        """Wait for a step and report it; returns the time at which it was ready."""
        loss = running.pending.loss()
        now_s = self._clock.now_s()
        step_time_s = now_s - before_s if running.steps > FIRST_STEPS_COMPILE else 0.0
        event = events.StepFinished(
            running.steps, running.tokens, step_time_s, isfinite(loss), running.leases
        )
        metrics = running.pending.metrics()
        self._outlet.report(StepReport(event, loss, gap_s, data_wait_s, metrics))
        return now_s


def made(model: Model) -> events.TrainerMade:
    """The event that tells what is known of a model before it has compiled."""
    return events.TrainerMade(model.moments_schema, model.moment_pieces, model.hardware)


def idled(engine: Engine) -> events.Idled:
    """The event that tells that an engine stands still, and why."""
    boundary = engine.boundary
    return events.Idled(
        boundary.steps,
        boundary.tokens,
        engine.leases,
        boundary.order,
        waiting=engine.waiting,
        late=engine.late,
    )


def _may_pass(error: Exception) -> bool:
    """Whether an error at the start may not recur at the next start."""
    passing = isinstance(error, OSError) and not isinstance(error, STAYS)
    return passing or lacks_memory(error)


def nobody(_: ComputeEvent) -> None:
    """Discard an event, since no actor has started this compute."""
