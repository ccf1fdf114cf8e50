"""The journal writer: it recovers and writes the journal on a worker, record after record.

A disk that is full, or fails, is tried again every `DISK_RETRY_S`: what the record holds is not
sent meanwhile, and learners go on stepping. Anything else ends this syncer, as a newer syncer's
epoch does, for which one that writes nothing looks with each heartbeat.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from islands.actors.ports import Worker
from islands.protocol.errors import DiskError, IslandsError
from islands.protocol.identities import Version
from islands.syncer.journal import Journal, Recovered
from islands.syncer.workers import attempt

T = TypeVar("T")

JournalRecord = tuple[int, bytes, int | None, Version | None, dict[str, NDArray[np.generic]]]
"""Sequence number, metadata, and of one fragment: its index, version and arrays."""

DISK_RETRY_S = 2.0


class JournalWriter:
    """Writes records in order, so that once a record is durable, all before it are.

    It calls `written` with the number of a durable record, `delayed` each time the disk fails,
    `failed` once nothing can be written any more, and `damaged` with files that are not whole.
    """

    def __init__(
        self,
        journal: Journal,
        worker: Worker,
        *,
        written: Callable[[int], object],
        delayed: Callable[[DiskError], object],
        failed: Callable[[IslandsError], object],
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
        """Own the journal, and read what was committed; nothing is written before."""

        def own(recovered: Recovered | None) -> None:
            self._owned = True
            if self._journal.damaged:
                self._damaged(self._journal.damaged)
            done(recovered)

        self.attempt(self._journal.take_over, own)

    def write(self, record: JournalRecord) -> None:
        self._unwritten.append(record)
        if len(self._unwritten) == 1:
            self._write_first()

    def attempt(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Do something with the disk; it is tried again as long as that is full or fails."""

        def finished(result: T) -> None:
            if not self._closed:
                done(result)

        def failed(error: IslandsError) -> None:
            if self._closed:
                return
            if not isinstance(error, DiskError):
                self._fail(error)
                return
            self._delayed(error)
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(DISK_RETRY_S, self.attempt, work, done)

        attempt(self._worker, work, done=finished, failed=failed)

    def look(self) -> None:
        """Check for a newer syncer unless a write will; if the disk fails, that will report it."""

        def failed(error: IslandsError) -> None:
            if not self._closed and not isinstance(error, DiskError):
                self._fail(error)

        if self._owned and not self._unwritten and not self._closed:
            check = self._journal.check_owner
            attempt(self._worker, check, done=lambda _: None, failed=failed)

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

    def _fail(self, error: IslandsError) -> None:
        self.close()
        self._failed(error)
