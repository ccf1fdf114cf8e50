"""The journal writer: it recovers and writes the journal on a worker, record after record.

Recovery comes first, and takes seconds for each gigabyte of state; the loop goes on meanwhile.

=====================================  ==========================================================
recovery, or a write, finds            then
=====================================  ==========================================================
a disk that is full, or fails          it is retried every `DISK_RETRY_S`: what the record holds
                                       is not sent meanwhile, and learners go on stepping
a newer syncer's epoch                 this syncer ends
anything else                          this syncer ends
=====================================  ==========================================================

A syncer that writes nothing would not learn of a newer one, so it looks with each heartbeat.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from islands.actors.ports import Worker
from islands.protocol.errors import DiskError, JournalError
from islands.protocol.identities import Version
from islands.syncer.journal import Journal, Recovered

T = TypeVar("T")

JournalRecord = tuple[int, bytes, int | None, Version | None, dict[str, NDArray[np.generic]]]
"""Sequence number, metadata, and of one fragment: its index, version and arrays."""

DISK_RETRY_S = 2.0


class JournalWriter:
    """Writes records in order, so that once a record is durable, all before it are.

    Args:
        journal: the journal to recover and to write to.
        worker: runs recovery and writes.
        written: called with a record's sequence number once it is durable.
        delayed: called each time the disk fails.
        failed: called once with the reason why nothing can be written any more.
        damaged: called with the files that were found missing or not whole, if there are any.
    """

    def __init__(
        self,
        journal: Journal,
        worker: Worker,
        *,
        written: Callable[[int], object],
        delayed: Callable[[DiskError], object],
        failed: Callable[[JournalError], object],
        damaged: Callable[[list[str]], object],
    ) -> None:
        self._journal = journal
        self._worker = worker
        self._written = written
        self._delayed = delayed
        self._failed = failed
        self._damaged = damaged
        self._unwritten: deque[JournalRecord] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._owned = False
        self._closed = False

    def take_over(self, done: Callable[[Recovered | None], object]) -> None:
        """Own the journal from now on, and read what was committed; nothing is written before."""

        def own(recovered: Recovered | None) -> None:
            self._owned = True
            if self._journal.damaged:
                self._damaged(self._journal.damaged)
            done(recovered)

        self.attempt(self._journal.take_over, own)

    def write(self, record: JournalRecord) -> None:
        """Make a record durable, after all that were given before."""
        self._unwritten.append(record)
        if len(self._unwritten) == 1:
            self._write_first()

    def attempt(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Do something with the disk; it is retried as long as that is full or fails.

        Args:
            work: does it on the worker; raises a DiskError if it cannot.
            done: called with its result.
        """

        def arrive(result: T | JournalError) -> None:
            if self._closed:
                return
            if isinstance(result, DiskError):
                self._delayed(result)
                loop = asyncio.get_running_loop()
                self._retry = loop.call_later(DISK_RETRY_S, self.attempt, work, done)
            elif isinstance(result, JournalError):
                self._fail(result)
            else:
                done(result)

        self._worker.submit(lambda: _tried(work), arrive)

    def look(self) -> None:
        """Check for a newer syncer unless a record waits: its write checks that anyway."""
        if self._owned and not self._unwritten and not self._closed:
            self._worker.submit(lambda: _tried(self._journal.check_owner), self._on_looked)

    def close(self) -> None:
        self._closed = True
        self._journal.give_up()
        if self._retry is not None:
            self._retry.cancel()

    def _write_first(self) -> None:
        record = self._unwritten[0]
        self.attempt(lambda: self._journal.write(*record), self._on_written)

    def _on_written(self, _: object) -> None:
        sequence = self._unwritten.popleft()[0]
        if self._unwritten:
            self._write_first()
        self._written(sequence)

    def _on_looked(self, found: int | JournalError) -> None:
        """End if a newer syncer owns the journal; if the disk fails, the next write reports it."""
        if isinstance(found, int | DiskError) or self._closed:
            return
        self._fail(found)

    def _fail(self, error: JournalError) -> None:
        self.close()
        self._failed(error)


def _tried(work: Callable[[], T]) -> T | JournalError:
    try:
        return work()
    except JournalError as error:
        return error
