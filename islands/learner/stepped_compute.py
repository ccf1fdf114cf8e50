"""Compute that is stepped by its caller, which comes to each boundary: a user's loop, or our own.

    its thread      boundary ─▶ step ─▶ boundary ─▶ step ─▶ …
    actor's loop       ▲ commands          │ events

A boundary stands before a step and announces it, since whoever processes more than its quota is
dismissed. A user's step is counted at the next boundary, which shows that it was dispatched, and a
thread of its own waits for its end. A boundary waits only while no step may be taken: before the
first values, while the run is paused, without a quota or a batch, or before a merge that the run's
preset waits for. Nothing else dispatches to the device.
"""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from islands.learner.boundary import Boundary, Dispatched, Running, StepData
from islands.learner.compute import (
    FIRST_STEPS_COMPILE,
    STARVED_AFTER_S,
    TO_STEP,
    TO_WAIT,
    BookCopy,
    Commands,
    ComputeFailed,
    CopyThread,
    LocalCommands,
    OrderedThread,
    Outlet,
    Post,
    StepReport,
    enqueue,
    made,
)
from islands.model.interfaces import Model
from islands.model.memory import memory_told
from islands.protocol.learner.actions import AllowSteps, EngineAction
from islands.protocol.learner.events import Idled, TrainerReady
from islands.protocol.settings.run import RunSettings
from messaging.clock import Clock, MonotonicClock


class SteppedCompute:
    """The boundaries of a model that its caller steps.

    Args:
        model: is used on the thread that steps alone.
        name: the learner's name, which its threads carry.
        commands: where commands wait for their boundary; by default on this host alone.
        outlet: where events go.
        own: whether the caller is a loop of the user's own: a thread waits for its steps, and a
            sentence says where memory lacks. Otherwise each step is waited for as soon as the next
            was counted, so at most two are under way.
    """

    def __init__(
        self,
        model: Model,
        settings: RunSettings,
        name: str,
        data: StepData,
        *,
        clock: Clock | None = None,
        commands: Commands | None = None,
        outlet: Outlet | None = None,
        own: bool = True,
    ) -> None:
        self._outlet = outlet or Outlet()
        self._commands = commands or LocalCommands()
        self.copier = CopyThread(
            name,
            report=self._outlet.report,
            failed=self._failed,
            room=self._commands.wake,
            books=not self._commands.agreed,
        )
        self._finisher = OrderedThread(f"steps-{name}", self._failed) if own else None
        self.boundary = Boundary(
            model, settings, data, report=self._outlet.report, copier=self.copier
        )
        self._clock = clock or MonotonicClock()
        self._resting = False
        self._lock = threading.Lock()  # a command is queued before `rest`, or answered after it
        self._running: Callable[[float], object] | None = None  # waits for the last step
        self._began_s = self._ready_s = self._clock.now_s()
        self._data_wait_s = 0.0

    # --- on the actor's loop ------------------------------------------------------------------

    @property
    def compiling(self) -> bool:
        """Always False: the work of a user's loop between boundaries is not known."""
        return False

    @property
    def model(self) -> Model:
        return self.boundary.model

    def start(self, post: Post) -> None:
        """Report that the model is ready, as it is before its user joins a run."""
        self._outlet.open(post)
        self._outlet.report(made(self.boundary.model))
        self._outlet.report(TrainerReady(self.batch_tokens))

    def command(self, command: EngineAction) -> None:
        with self._lock:
            if not self._resting:
                self._commands.put(command)
                return
        if isinstance(command, AllowSteps):
            at = self.boundary
            self._report_idle(Idled(at.steps, at.tokens, at.data.leases, command.order))

    def stop(self) -> None:
        self._outlet.close()
        self._commands.stop()

    # --- on the thread that steps -------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether the learner has ended, so that steps are the user's own affair.

        Where several hosts agree on boundaries, it changes at the same boundary on all of them.
        """
        return self._commands.ended

    @property
    def batch_tokens(self) -> int:
        return self.boundary.data.next_tokens() or 0

    def reads(self, data: StepData) -> None:
        data.follow(self.boundary.data.leases)
        self.boundary.data = data

    def stepped(self, step: Dispatched, *, drained: bool = False) -> None:
        """Count the step since the last boundary; the one before it was done there if `drained`."""
        running = self.boundary.stepped(step)
        finish = partial(self._finish, running, self._began_s, self._data_wait_s)
        self._data_wait_s = 0.0
        if self._finisher is not None:
            self._finisher.submit(finish)
            return
        if self._running is None:
            self._ready_s = self._began_s  # it stood still since, as no step was allowed: no gap
        self._finish_last(self._began_s - self._ready_s if drained else 0.0)
        self._running = finish

    def arrive(
        self,
        until: Callable[[], bool] | None = None,
        also: Callable[[], object] = lambda: None,
    ) -> bool:
        """Carry out the commands at a boundary, and wait for as long as no step may be taken.

        `until` is the condition to wait for, where no step is to follow; `also` is done at each
        boundary when all else was carried out. False: the learner ended.
        """
        while not self.stopped:
            self._carry_out(TO_STEP if until is None else TO_WAIT)
            if self._commands.ended:
                return False
            also()
            if until is not None and until():
                return True
            if self.boundary.has_work(wanted=until is None):
                self._began_s = self._clock.now_s()
                return True
            self._wait()
        return False

    def rest(self) -> None:
        """Note that no boundary follows, and the arrays are not to be touched any more."""
        with self._lock:
            self._resting = True
            waiting = self._commands.rest(self.boundary.steps)
        for command in waiting:
            if not isinstance(command, BookCopy):
                self.command(command)

    def close(self) -> None:
        self.copier.close()
        if self._finisher is not None:
            self._finisher.close()

    def _carry_out(self, to: str) -> None:
        taken = self._commands.take(self.boundary.steps, to)
        for command in taken:
            if isinstance(command, BookCopy):
                self.copier.book(command.fragment)
            else:
                enqueue(self.boundary.commands, command)
        if taken or not self._commands.ended:  # or other hosts may be gone, who would do the same
            layout = self.boundary.model.layout
            with nullcontext() if self._finisher is None else memory_told(layout):
                self.boundary.carry_out()

    def _wait(self) -> None:
        """Report that no step follows, if that is news, and wait until there may be one.

        A batch that has not been read yet may come soon, so that is reported after a while.
        """
        self._finish_last()
        patient = self.boundary.late and self._clock.now_s() - self._ready_s < STARVED_AFTER_S
        idled = None if patient else self.boundary.idled()
        if idled is not None:
            self._report_idle(idled)
        awaited, began_s = self.boundary.data.expecting, self._clock.now_s()
        if not self.boundary.unread:
            self._commands.sleep(STARVED_AFTER_S if patient else None)
        if awaited:
            self._data_wait_s += self._clock.now_s() - began_s

    def _report_idle(self, idled: Idled) -> None:
        """Report that no step follows, after all steps before were reported."""
        if self._finisher is None:
            self._outlet.report(idled)
        else:
            self._finisher.submit(lambda: self._outlet.report(idled))

    def _finish_last(self, gap_s: float = 0.0) -> None:
        finish, self._running = self._running, None
        if finish is not None:
            finish(gap_s)

    # --- on the thread that waits for steps ---------------------------------------------------

    def _finish(
        self, running: Running, began_s: float, data_wait_s: float, gap_s: float = 0.0
    ) -> None:
        loss = running.step.loss()
        now_s = self._clock.now_s()
        compiled = running.steps > FIRST_STEPS_COMPILE
        took_s = now_s - max(began_s, self._ready_s) if compiled else 0.0
        self._ready_s = now_s
        self._outlet.report(StepReport.of(running, loss, took_s, gap_s, data_wait_s))

    def _failed(self, error: Exception) -> None:
        self._outlet.report(ComputeFailed(error))
