"""Between a learner's actor and its device: commands, events that answer them, copies to the host.

A boundary of a learner on one host carries out all commands that have come (`LocalCommands`).
Several hosts first agree on the commands of each boundary (`islands.island`).

Ordinarily the copy of a snapshot overlaps the next step, so two of a fragment may be in transit.
Where copies, which are done one after another, take longer than steps, each fragment has at most
one in transit, and a boundary begins only as many as keep the transfer busy until the next one, the
most urgent first. So memory is bounded, and every copy that was begun arrives.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Protocol, Self

from islands.learner.boundary import EngineEvent, PendingPiece, PendingSnapshot, Running
from islands.model.interfaces import Model
from islands.protocol.identities import FragmentIndex
from islands.protocol.learner import events
from islands.protocol.learner.actions import AdoptValue, EngineAction
from islands.protocol.learner.events import MomentsRead, SnapshotTaken

STEPPING = "taking a step"
"""The usual activity of the thread that steps."""

TO_STEP, TO_WAIT, TO_LEAVE = "to take a step", "to take no step", "to leave"
"""The reasons to come to a boundary."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A boundary that a host's thread came to, alike on all hosts of an island.

    `boundary` is its number from 0 on, `steps` were counted before it, and `to` is the reason.
    """

    boundary: int
    steps: int
    to: str


@dataclass(frozen=True, slots=True)
class BookCopy:
    """Every host has copied its slice of a fragment's oldest snapshot that is in transit.

    Several hosts book that at one boundary, since it decides which snapshots are taken next.
    """

    fragment: int


def enqueue(commands: MutableSequence[EngineAction], command: EngineAction) -> None:
    """Queue a command for the next boundary, with one value to adopt per fragment at most."""
    if isinstance(command, AdoptValue):
        for waiting in commands:
            if isinstance(waiting, AdoptValue) and waiting.fragment == command.fragment:
                commands.remove(waiting)
                break
    commands.append(command)


class Commands(Protocol):
    """The commands that wait for a boundary.

    Attributes:
        agreed: Whether several hosts agree on them. Then the timing of one host must not decide
            what its thread dispatches.
        doing: The activity of the thread that steps, for people.
    """

    agreed: bool
    doing: str

    @property
    def ended(self) -> bool:
        """Whether no boundary is to follow; it changes in `take` or `sleep` alone, or earlier."""

    def put(self, command: EngineAction) -> None:
        """Queue a command; called on the actor's loop, and never waits for the device."""

    def take(self, steps: int = 0, to: str = TO_STEP) -> Sequence[EngineAction | BookCopy]:
        """Return the commands of this boundary, in order; called once at each."""

    def rest(self, steps: int = 0) -> Sequence[EngineAction | BookCopy]:
        """Let no further boundary follow, and return the commands that none carries out."""

    def sleep(self, limit_s: float | None = None) -> None:
        """Wait until there may be something to do at a boundary, or for so long at most."""

    def wake(self) -> None:
        """End a `sleep`, as a batch or room has come that a boundary waits for."""

    def stop(self) -> None:
        """Let no further boundary follow."""


class LocalCommands:
    """The commands of a learner on one host: a boundary takes whatever has come."""

    agreed = False

    def __init__(self) -> None:
        self.ended = False
        self.doing = STEPPING
        self._changed = threading.Condition()
        self._inbox: list[EngineAction] = []
        self._news = False

    def put(self, command: EngineAction) -> None:
        with self._changed:
            enqueue(self._inbox, command)
            self._changed.notify()

    def take(self, steps: int = 0, to: str = TO_STEP) -> list[EngineAction]:
        del steps, to
        with self._changed:
            inbox, self._inbox = self._inbox, []
        return inbox

    def rest(self, steps: int = 0) -> list[EngineAction]:
        self.ended = True
        return self.take(steps, TO_LEAVE)

    def sleep(self, limit_s: float | None = None) -> None:
        with self._changed:
            while not (self._inbox or self.ended or self._news):
                if not self._changed.wait(limit_s):
                    break
            self._news = False

    def wake(self) -> None:
        with self._changed:
            self._news = True
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify()


FIRST_STEPS_COMPILE = 1
"""First steps whose time is not reported, because it may contain compilation."""

STARVED_AFTER_S = 1.0
"""A device that has waited for data for so long is reported to be without work."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """A finished step with the figures that only the metrics need.

    `gap_s` is an upper bound of the device's idle time before the next step was dispatched, but for
    `data_wait_s`, in which no batch had been read yet. `loss` is None where it is not known.
    """

    event: events.StepFinished
    loss: float | None
    gap_s: float
    data_wait_s: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, running: Running, loss: float | None, took_s: float, gap_s: float, data_wait_s: float
    ) -> Self:
        finite = loss is None or isfinite(loss)
        steps, tokens, leases = running.steps, running.tokens, running.leases
        event = events.StepFinished(steps, tokens, took_s, finite, leases)
        return cls(event, loss, gap_s, data_wait_s, running.step.metrics())


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A write of moments to this host's disk has ended; `error` is empty if it succeeded."""

    error: str


@dataclass(frozen=True, slots=True)
class ComputeFailed:
    """The trainer raised an error that ends the learner."""

    error: Exception


ComputeEvent = events.ComputeReport | EngineEvent | StepReport | CheckpointWritten | ComputeFailed
Post = Callable[[ComputeEvent], object]


class Compute(Protocol):
    """The interface through which a learner's actor drives its device."""

    @property
    def compiling(self) -> bool:
        """Whether the device's thread compiles at this moment, which makes a step take long."""

    def start(self, post: Post) -> None:
        """Build and compile, then obey commands; report through `post` on the actor's loop."""

    def command(self, command: EngineAction) -> None:
        """Queue a command for the next step boundary; never waits for the device."""

    def stop(self) -> None:
        """Stop at the next boundary, without another report."""


class Outlet:
    """Posts events from any thread to the actor, on the loop on which it was opened."""

    def __init__(self) -> None:
        self._post: Post = nobody
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, post: Post) -> None:
        self._post, self._loop = post, asyncio.get_running_loop()

    def close(self) -> None:
        self._loop = None

    def report(self, event: ComputeEvent) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # the loop closed between the check and the call
                loop.call_soon_threadsafe(self._post, event)


def made(model: Model) -> events.TrainerMade:
    return events.TrainerMade(model.moments_schema, model.moment_pieces, model.hardware)


def nobody(_: ComputeEvent) -> None:
    """Discard an event of a compute that no actor has started."""


COPIES_MAX = 2
"""Snapshots of one fragment that may be in transit at once."""

LAG_ORDINARY_STEPS = 1
"""Steps that are dispatched while a copy is in transit, if copies keep up with steps."""


@dataclass(slots=True)
class SnapshotCopies:
    """The snapshots in transit.

    `in_transit` holds, by fragment, the totals of steps at which they were taken. `steps` is the
    total at the last boundary, and `lag_steps` how many steps were dispatched while the copy that
    arrived last was in transit. It decreases only with the next step: while compute takes none, all
    fragments would be copied at once, and the one asked for next would wait behind them. `room` is
    the limit for all fragments while copies lag, by how many `arrived` during the step before.
    """

    steps: int = 0
    lag_steps: int = 0
    newest_lag_steps: int = 0
    room: int = COPIES_MAX
    arrived: int = 0
    in_transit: dict[int, deque[int]] = field(default_factory=dict)

    def may_begin(self, fragment: int, steps: int) -> bool:
        if steps != self.steps:
            self.lag_steps = self.newest_lag_steps
            self.room, self.arrived = COPIES_MAX + self.arrived, 0
        self.steps = steps
        mine = len(self.in_transit.get(fragment, ()))
        if self.lag_steps <= LAG_ORDINARY_STEPS:
            return mine < COPIES_MAX
        return mine == 0 and sum(map(len, self.in_transit.values())) < self.room

    def begin(self, fragment: int, steps: int) -> None:
        self.in_transit.setdefault(fragment, deque()).append(steps)

    def arrive(self, fragment: int) -> None:
        """Note that a fragment's oldest snapshot in transit has reached the host."""
        self.arrived += 1
        self.newest_lag_steps = self.steps - self.in_transit[fragment].popleft()
        self.lag_steps = max(self.lag_steps, self.newest_lag_steps)


class OrderedThread:
    """A thread that does work in order, and calls `failed` with the error that ended a piece."""

    def __init__(self, name: str, failed: Callable[[Exception], object]) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._failed = failed

    def submit(self, work: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # it was closed: nobody listens any more
            self._pool.submit(self._attempt, work)

    def close(self) -> None:
        self._pool.shutdown(wait=False)

    def _attempt(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  the actor reports it and ends the process
            self._failed(error)


class CopyThread(OrderedThread):
    """Waits for snapshots and pieces of moments, one after another, and reports their arrival.

    Args:
        report: receives the event of each arrival; called on the thread.
        room: called on the thread whenever a boundary may begin a snapshot that had no room.
        books: whether a snapshot that has arrived is booked at once, and not by `book`.
    """

    def __init__(
        self,
        name: str,
        *,
        report: Callable[[SnapshotTaken | MomentsRead], object],
        failed: Callable[[Exception], object],
        room: Callable[[], object],
        books: bool = True,
    ) -> None:
        super().__init__(f"copy-{name}", failed)
        self._lock = threading.Lock()
        self._copies = SnapshotCopies()
        self._report = report
        self._room = room
        self._books = books

    def may_begin(self, fragment: FragmentIndex, steps: int) -> bool:
        with self._lock:
            return self._copies.may_begin(fragment, steps)

    def book(self, fragment: int) -> None:
        with self._lock:
            self._copies.arrive(fragment)

    def await_snapshot(self, taken: PendingSnapshot) -> None:
        with self._lock:
            self._copies.begin(taken.fragment, taken.steps)
        self.submit(lambda: self._snapshot_arrives(taken))

    def await_piece(self, taken: PendingPiece) -> None:
        self.submit(lambda: self._report(taken.on_host()))

    def _snapshot_arrives(self, taken: PendingSnapshot) -> None:
        event = taken.on_host()
        if self._books:
            self.book(taken.fragment)
            self._room()
        self._report(event)
