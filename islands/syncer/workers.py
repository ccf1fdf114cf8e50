"""Workers for a syncer's heavy work, and the callbacks that its host gives it.

Each kind of work has its own worker, so that none waits for another:

==========  ===================================  ==================================================
worker      does                                 order
==========  ===================================  ==================================================
inspecting  digest and norms of contributions    none: several at once, by the host's cores
merging     merges, outer steps, version 0       as rounds close
writing     the journal, recovery, the export    by sequence number, each after the merge it holds
==========  ===================================  ==================================================

A fragment's next merge begins after its last one is durable: its next round is not opened before.
So no record is written from arrays that change, although merging and writing run concurrently.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from islands.actors.ports import ThreadWorker, Worker
from islands.protocol.errors import IslandsError
from islands.protocol.identities import FinalVersions
from islands.protocol.syncer.state import SyncerState

T = TypeVar("T")

INSPECTORS_MAX = 8
"""More threads than this are limited by the memory, not by the cores."""


@dataclass(frozen=True, slots=True)
class SyncerWorkers:
    """One worker for each kind of heavy work; `at_end` does what blocks when they are closed."""

    inspecting: Worker
    merging: Worker
    writing: Worker
    at_end: Callable[[Callable[[], object]], Awaitable[object]] = asyncio.to_thread

    @classmethod
    def of(cls, worker: Worker) -> Self:
        """Use one worker for everything, in order."""
        return cls(worker, worker, worker)

    def close(self) -> None:
        """Take no more work; writes of files that were begun are waited for."""
        self.inspecting.close()
        self.merging.close()
        self.writing.close()


def attempt(
    worker: Worker,
    work: Callable[[], T],
    *,
    done: Callable[[T], object],
    failed: Callable[[IslandsError], object],
) -> None:
    """Do work on a worker that may raise an error of ours; then call one of the two on the loop."""

    def tried() -> T | IslandsError:
        try:
            return work()
        except IslandsError as error:
            return error

    def finish(result: T | IslandsError) -> None:
        if isinstance(result, IslandsError):
            failed(result)
        else:
            done(result)

    worker.submit(tried, finish)


def worker_threads(name: str, failed: Callable[[BaseException], object]) -> SyncerWorkers:
    inspectors = min(INSPECTORS_MAX, len(os.sched_getaffinity(0)))
    return SyncerWorkers(
        ThreadWorker(f"{name}-inspect", failed, finish=False, threads=inspectors),
        ThreadWorker(f"{name}-merge", failed, finish=False),
        ThreadWorker(f"{name}-write", failed),
    )


Export = Callable[[list[NDArray[np.float32]], FinalVersions], None]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of one syncer: `ready` when it has read its journal and listens.

    `export` is given the final values on the worker, before anybody hears that the run is over;
    `stopped`, on a thread, what is published if the syncer is stopped before that. `report` is
    called when the final cut is durable and exported, and returns the syncer's part of the summary
    as JSON. `revoked` gets all revocations of invitations, with their times in ms since 1970.
    """

    ready: Callable[[], object] | None = None
    export: Export | None = None
    stopped: Export | None = None
    report: Callable[[SyncerState], bytes] | None = None
    revoked: Callable[[tuple[tuple[str, int], ...]], object] | None = None
