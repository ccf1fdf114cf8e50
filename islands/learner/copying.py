"""Copies from a device to its host: threads that wait for them, and how many may be in transit.

Ordinarily the copy of a snapshot overlaps the next step, so two of a fragment may be in transit.
Where copies, which are done one after another, take longer than steps, each fragment has at most
one in transit, and a boundary begins only as many as keep the transfer busy until the next one, the
most urgent first. So memory is bounded, and every copy that was begun arrives.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from islands.learner.boundary import PendingPiece, PendingSnapshot
from islands.protocol.identities import FragmentIndex
from islands.protocol.learner.events import MomentsRead, SnapshotTaken

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
