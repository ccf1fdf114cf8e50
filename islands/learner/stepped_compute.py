"""Compute that is stepped by its caller: a loop of the user's own, which comes to each boundary.

    user's thread   boundary ─▶ step ─▶ boundary ─▶ step ─▶ …
    actor's loop       ▲ commands          │ events

A boundary stands before a step and announces it, since whoever processes more than its quota is
dismissed. A step is counted at the next boundary, which shows that it was dispatched; what tells
that it has finished comes with that boundary, and a thread of its own waits for it. A boundary
waits in one case alone: no step may be taken, as before the first values, when the run is paused,
without a quota, or before a merge that the run's preset waits for.

Nothing else touches the device: all that is dispatched here is dispatched on the user's thread.
"""

import threading
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Protocol

from islands.learner.boundary import Boundary
from islands.learner.commands import (
    TO_STEP,
    TO_WAIT,
    BookCopy,
    Commands,
    LocalCommands,
    enqueue,
)
from islands.learner.compute import (
    FIRST_STEPS_COMPILE,
    ComputeFailed,
    Outlet,
    Post,
    StepReport,
    made,
)
from islands.learner.copying import CopyThread, OrderedThread
from islands.model.interfaces import Model
from islands.model.memory_faults import memory_told
from islands.protocol.identities import Lease
from islands.protocol.learner.actions import AllowSteps, EngineAction
from islands.protocol.learner.events import Idled, StepFinished, TrainerReady
from islands.protocol.settings.run import RunSettings
from messaging.clock import Clock, MonotonicClock


class Dispatched(Protocol):
    """A step that the user's loop has dispatched and that may not have finished."""

    def wait(self) -> float | None:
        """Wait until the step is done and return its loss; None if the loss is not known."""

    def metrics(self) -> dict[str, float]:
        """Return what else the step reports, once it is done, by name."""


class Leased(Protocol):
    """The data of the leases that are held, if the loop reads what the syncer leases."""

    def follow(self, leases: Sequence[Lease]) -> tuple[Lease, ...]:
        """Replace the leases, and return them with the positions reached."""

    def ready(self) -> bool:
        """Read the next batch unless it was read; return whether there is one."""

    def booked(self) -> tuple[Lease, ...]:
        """Count what was taken for the last step, and return the leases after it."""


class SteppedCompute:
    """The boundaries of a model that its user steps.

    Args:
        model: the arrays that are trained; it is used on the user's thread alone.
        settings: settings of the run.
        name: the learner's name, which its threads carry.
        batch_tokens: tokens of each step.
        clock: tells how long steps take.
        commands: where commands wait for their boundary; by default on this host alone.

    Attributes:
        batch_tokens: tokens of each step.
    """

    def __init__(
        self,
        model: Model,
        settings: RunSettings,
        name: str,
        batch_tokens: int,
        clock: Clock | None = None,
        commands: Commands | None = None,
    ) -> None:
        self._outlet = Outlet()
        self._commands = commands or LocalCommands()
        self._copier = CopyThread(
            name,
            report=self._outlet.report,
            failed=self._failed,
            room=self._commands.wake,
            books=not self._commands.agreed,
        )
        self._finisher = OrderedThread(f"steps-{name}", self._failed)
        self._boundary = Boundary(
            model,
            settings,
            report=self._outlet.report,
            copier=self._copier,
            follow=self._follow,
        )
        self._model = model
        self.batch_tokens = batch_tokens
        self._clock = clock or MonotonicClock()
        self._resting = False
        self._lock = threading.Lock()  # a command is queued before `rest`, or answered after it
        self._leases: tuple[Lease, ...] = ()
        self._data: Leased | None = None  # what the leases are of; by default the user's own affair
        self._owed = False  # whether an `AllowSteps` has no answer yet
        self._why: bool | None = None  # whether it stands still for a merge, as was reported last
        self._began_s = 0.0
        self._ready_s = 0.0

    # --- on the actor's loop ------------------------------------------------------------------

    @property
    def compiling(self) -> bool:
        """Always False: what the user's own loop does between boundaries is not known."""
        return False

    @property
    def model(self) -> Model:
        """The model, of which only the shapes may be read here."""
        return self._model

    def start(self, post: Post) -> None:
        """Tell that the model is ready, as it is before its user joins a run."""
        self._outlet.open(post)
        self._outlet.report(made(self._model))
        self._outlet.report(TrainerReady(self.batch_tokens))

    def command(self, command: EngineAction) -> None:
        with self._lock:
            if not self._resting:
                self._commands.put(command)
                return
        if isinstance(command, AllowSteps):
            self._report_idle(command.order, waiting=False)

    def stop(self) -> None:
        """Let no boundary wait, and carry out nothing more."""
        self._outlet.close()
        self._commands.stop()

    # --- on the user's thread -----------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether the learner has ended, so that steps are the user's own affair.

        Where several hosts agree on boundaries, it changes at the same boundary on all of them.
        """
        return self._commands.ended

    @property
    def clock(self) -> float:
        """The learning-rate clock at the next step: the fleet's count of steps."""
        return self._boundary.clock

    @property
    def whole(self) -> bool:
        return bool(self._boundary.versions)

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The leases that are held, with the positions of the steps that were counted."""
        return self._leases

    @property
    def steps(self) -> int:
        return self._boundary.steps

    def reads(self, data: Leased) -> None:
        """Have every step take a batch of the leases from here on."""
        self._data = data
        self._leases = data.follow(self._leases)

    def stepped(self, step: Dispatched) -> None:
        """Count the step that was dispatched since the last boundary."""
        boundary = self._boundary
        if self._data is not None:
            self._leases = self._data.booked()
        boundary.stepped(self.batch_tokens)
        steps, tokens = boundary.steps, boundary.tokens
        leases, began_s = self._leases, self._began_s
        self._finisher.submit(lambda: self._await_step(step, began_s, steps, tokens, leases))

    def arrive(self, until: Callable[[], bool] | None = None) -> bool:
        """Carry out what is due at a boundary, and wait for as long as no step may be taken.

        Returns:
            Whether a step may be taken, or what was waited for is true. False: the learner ended.
        """
        while not self.stopped:
            self._carry_out(TO_STEP if until is None else TO_WAIT)
            if self._commands.ended:
                return False
            if until is not None:
                if until():
                    return True
            elif self._may_step():
                self._owed, self._why, self._began_s = False, None, self._clock.now_s()
                return True
            self._stand_still()
            self._sleep()
        return False

    def rest(self) -> None:
        """Note that no boundary follows, and the arrays are not to be touched any more.

        It may be called twice; on several hosts the learner has ended here then.
        """
        with self._lock:
            self._resting = True
            waiting = self._commands.rest(self._boundary.steps)
        for command in waiting:
            if not isinstance(command, BookCopy):
                self.command(command)

    def close(self) -> None:
        self._copier.close()
        self._finisher.close()

    def _carry_out(self, to: str) -> None:
        taken = self._commands.take(self._boundary.steps, to)
        for command in taken:
            if isinstance(command, BookCopy):
                self._copier.book(command.fragment)
                continue
            self._owed |= isinstance(command, AllowSteps)
            enqueue(self._boundary.commands, command)
        if taken or not self._commands.ended:  # or other hosts may be gone, who would do the same
            with memory_told(self._model.layout):
                self._boundary.carry_out()

    def _may_step(self) -> bool:
        if not self._boundary.granted(self.batch_tokens) or self._boundary.awaits_merge:
            return False
        return self._data is None or self._data.ready()

    def _stand_still(self) -> None:
        """Carry out what would wait for a later step; tell that none follows, if that is new."""
        boundary = self._boundary
        waiting = boundary.granted(self.batch_tokens) and boundary.awaits_merge
        if not waiting:
            boundary.stood_still()
            boundary.adopt_now()
        if self._owed or self._why is not waiting:
            self._report_idle(boundary.order, waiting=waiting)
            self._owed, self._why = False, waiting

    def _report_idle(self, order: int, *, waiting: bool) -> None:
        """Tell that no step follows, after all steps before were reported."""
        steps, tokens = self._boundary.steps, self._boundary.tokens
        idle = Idled(steps, tokens, self._leases, order, waiting=waiting)
        self._finisher.submit(lambda: self._outlet.report(idle))

    def _sleep(self) -> None:
        if not self._boundary.unread:
            self._commands.sleep()

    def _follow(self, leases: tuple[Lease, ...]) -> None:
        """Hold the leases; their positions never change where a loop reads data of its own."""
        self._leases = leases if self._data is None else self._data.follow(leases)

    # --- on other threads ---------------------------------------------------------------------

    def _await_step(
        self, step: Dispatched, began_s: float, steps: int, tokens: int, leases: tuple[Lease, ...]
    ) -> None:
        loss = step.wait()
        now_s = self._clock.now_s()
        took_s = now_s - max(began_s, self._ready_s) if steps > FIRST_STEPS_COMPILE else 0.0
        self._ready_s = now_s
        event = StepFinished(steps, tokens, took_s, loss is None or isfinite(loss), leases)
        self._outlet.report(StepReport(event, loss, 0.0, 0.0, step.metrics()))

    def _failed(self, error: Exception) -> None:
        self._outlet.report(ComputeFailed(error))
