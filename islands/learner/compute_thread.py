"""The thread that owns a device, and steps a task's trainer in a loop over boundaries.

It dispatches step t+1 before it waits for step t, so the device never waits for Python. A second
thread waits for snapshots, and a third one reads batches, off the step's critical path.
"""

import threading
from collections.abc import Callable

from islands.learner.boundary import TrainerData
from islands.learner.compute import (
    STEPPING,
    CheckpointWritten,
    Commands,
    ComputeFailed,
    LocalCommands,
    Outlet,
    Post,
    made,
)
from islands.learner.moments import CheckpointFile, CheckpointWriter
from islands.learner.stepped_compute import SteppedCompute
from islands.model.interfaces import Model, PendingStep, Trainer, first_pass
from islands.model.memory import compute_failure, lacks_memory
from islands.protocol.errors import IslandsError, TaskError
from islands.protocol.learner.actions import EngineAction
from islands.protocol.learner.events import TrainerReady
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.batch_source import ReadAhead
from islands.tasks.source_location import task_error
from messaging.clock import Clock, MonotonicClock

STAYS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors of a wrong path: they recur at every start."""


class ComputeThread:
    """The one thread that owns a device, on which `make_trainer` is called.

    `kept` keeps the moments for a later process of this name. Commands wait for their boundary in
    `commands`, by default on this host alone.
    """

    def __init__(
        self,
        make_trainer: Callable[[], Trainer],
        settings: RunSettings,
        name: str,
        kept: CheckpointFile | None = None,
        commands: Commands | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._make_trainer = make_trainer
        self._settings = settings
        self._clock = clock or MonotonicClock()
        self._commands = commands or LocalCommands()
        self._thread = threading.Thread(target=self._run, name=f"compute-{name}", daemon=True)
        self._outlet = Outlet()
        self._name = name
        self._kept = kept
        self._trainer: Trainer | None = None
        self._closing: list[Callable[[], object]] = []

    @property
    def compiling(self) -> bool:
        return self._trainer is not None and self._trainer.compiling

    @property
    def model(self) -> Model | None:
        return self._trainer

    def start(self, post: Post) -> None:
        self._outlet.open(post)
        self._thread.start()

    def command(self, command: EngineAction) -> None:
        self._commands.put(command)

    def stop(self) -> None:
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
            for close in self._closing:
                close()

    def _work(self) -> None:
        trainer, data = self._set_up()
        compute = SteppedCompute(
            trainer,
            self._settings,
            self._name,
            data,
            clock=self._clock,
            commands=self._commands,
            outlet=self._outlet,
            own=False,
        )
        self._closing.append(compute.close)
        if self._commands.agreed:  # compilers of several hosts may talk to one another
            trainer.prepare_giving()
        else:
            compute.copier.submit(trainer.prepare_giving)
        boundary, keeper = compute.boundary, self._make_keeper()

        def keep() -> None:
            if keeper is not None:
                keeper.at_boundary(trainer, boundary.versions, boundary.steps, boundary.resets)

        before: PendingStep | None = None
        while compute.arrive(also=keep):
            drained = before is not None and before.ready()
            rate = self._settings.learning_rate_at(boundary.clock)
            before = trainer.step(data.take(), rate)  # a device that is the host may take it here
            compute.stepped(before, drained=drained)
        if keeper is not None:
            keeper.at_the_end(trainer, boundary.versions, boundary.steps)

    def _make_reader(self, trainer: Trainer) -> ReadAhead:
        commands = self._commands

        def waits(doing: str) -> None:
            commands.doing = doing or STEPPING

        waiting = waits if commands.agreed else None
        return ReadAhead(trainer.batches, f"read-{self._name}", commands.wake, waiting)

    def _make_keeper(self) -> CheckpointWriter | None:
        if self._kept is None:
            return None
        keeper = CheckpointWriter(
            self._kept, self._clock, lambda error: self._outlet.report(CheckpointWritten(error))
        )
        self._closing.append(keeper.abandon)
        return keeper

    def _set_up(self) -> tuple[Trainer, TrainerData]:
        """Build and compile; an error here recurs at every start, so the user must mend it.

        A device or host that has no memory yet, as its last process was just killed, ends the
        process like any failure: it is restarted.
        """
        try:
            trainer = self._trainer = self._make_trainer()
            reader = self._make_reader(trainer)
            self._closing.append(reader.close)
            self._outlet.report(made(trainer))
            trainer.setup()
            finite = trainer.finite()
            batch_tokens = trainer.tokens(next(first_pass(trainer)))
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
        self._outlet.report(TrainerReady(batch_tokens))
        return trainer, TrainerData(trainer, reader)


def _may_pass(error: Exception) -> bool:
    passing = isinstance(error, OSError) and not isinstance(error, STAYS)
    return passing or lacks_memory(error)
