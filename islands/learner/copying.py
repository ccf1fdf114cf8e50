"""Threads that wait for what a device has begun, off the path of a step."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from islands.learner.boundary import PendingPiece, PendingSnapshot
from islands.protocol.identities import FragmentIndex
from islands.protocol.learner.events import MomentsRead, SnapshotTaken
from islands.protocol.learner.snapshot_copies import SnapshotCopies


class OrderedThread:
    """A thread that does its work in the order in which it was given.

    Args:
        name: name of the thread.
        failed: told the error with which work ended; called on the thread.
    """

    def __init__(self, name: str, failed: Callable[[Exception], object]) -> None:
        """Do nothing yet."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._failed = failed

    def submit(self, work: Callable[[], object]) -> None:
        """Have the thread do some work after all before it, unless it was closed."""
        with suppress(RuntimeError):  # it was closed: nobody listens any more
            self._pool.submit(self._attempt, work)

    def close(self) -> None:
        """Take nothing more."""
        self._pool.shutdown(wait=False)

    def _attempt(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  the actor reports it and ends the process
            self._failed(error)


class CopyThread(OrderedThread):
    """Waits for snapshots and pieces of moments, one after another, and tells of their arrival.

    Args:
        name: name of the learner, which the thread carries.
        tell: told what has arrived; called on the thread.
        failed: told the error with which a copy ended; called on the thread.
        room: called on the thread whenever a boundary may begin a snapshot that had no room.
        books: whether a snapshot that has arrived counts as in transit no more; else `book` tells.
    """

    def __init__(
        self,
        name: str,
        *,
        tell: Callable[[SnapshotTaken | MomentsRead], object],
        failed: Callable[[Exception], object],
        room: Callable[[], object],
        books: bool = True,
    ) -> None:
        """Copy nothing yet."""
        super().__init__(f"copy-{name}", failed)
        self._lock = threading.Lock()
        self._copies = SnapshotCopies()
        self._tell = tell
        self._room = room
        self._books = books

    def may_begin(self, fragment: FragmentIndex, steps: int) -> bool:
        """Whether a further snapshot of a fragment may begin, given those still being copied."""
        with self._lock:
            return self._copies.may_begin(fragment, steps)

    def book(self, fragment: int) -> None:
        """Count a fragment's oldest snapshot as in transit no more."""
        with self._lock:
            self._copies.arrive(fragment)

    def await_snapshot(self, taken: PendingSnapshot) -> None:
        """Have the thread wait for a snapshot."""
        with self._lock:
            self._copies.begin(taken.fragment, taken.steps)
        self.submit(lambda: self._snapshot_arrives(taken))

    def await_piece(self, taken: PendingPiece) -> None:
        """Have the thread wait for a piece of moments."""

        def arrives() -> None:
            self._tell(MomentsRead(taken.piece, taken.asker, taken.snapshot.buffer()))

        self.submit(arrives)

    def _snapshot_arrives(self, taken: PendingSnapshot) -> None:
        buffer = taken.snapshot.buffer()
        if self._books:
            self.book(taken.fragment)
            self._room()
        totals = (taken.base, taken.steps, taken.tokens)
        self._tell(SnapshotTaken(taken.fragment, *totals, buffer, taken.round, taken.cursor))
