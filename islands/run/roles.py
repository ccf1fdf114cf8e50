"""Factories of the syncer's and the observer's actors; `learner_process.py` has the learner's.

By default a role uses threads of this process, and a random generator without a fixed seed.
"""

import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.actors.epochs import epoch_disk
from islands.actors.ports import ThreadWorker, Worker
from islands.actors.role_actor import Context
from islands.files.disk import Disk, RealDisk
from islands.files.folder_lock import lock_folder
from islands.files.run_files import FINAL_FILE, JOURNAL_LOCK
from islands.layout.leaves import Layout
from islands.model.evaluation import EvaluateValues, Judged
from islands.numerics.codecs import warm_up as load_loops
from islands.numerics.increment import warm_up as load_increments
from islands.numerics.merge import warm_up
from islands.numerics.outer import OuterOptimizer, outer_optimizer
from islands.observer.actor import ObserverActor
from islands.protocol.errors import DiskError, IslandsError
from islands.protocol.identities import SYNCER, FinalVersions
from islands.protocol.membership import Credentials
from islands.protocol.syncer.versions import waits_s
from islands.protocol.tape import process_entries
from islands.run.records.model_files import metadata_of, read_values, write_model
from islands.run.records.summary import share_of
from islands.settings.run_spec import RunSpec
from islands.syncer.actor import SyncerActor
from islands.syncer.journal import JOURNAL, Follower
from islands.syncer.workers import Hooks, SyncerWorkers, worker_threads

Floats = NDArray[np.float32]


def chance() -> random.Random:
    """Return a random generator that is seeded by the operating system."""
    return random.Random(os.urandom(8))


def make_observer(
    name: str,
    context: Context,
    *,
    evaluate: EvaluateValues,
    report: Callable[[Judged, dict[str, float]], object],
    failed: Callable[[IslandsError], object],
    interval_s: float,
    rng: random.Random | None = None,
    evaluator: Worker | None = None,
) -> ObserverActor:
    """Make the actor of an observer.

    `report` is called with every evaluation: which values were judged, and their figures; `failed`
    with the error that the user has to correct. The `evaluator` does the evaluations.
    """

    def worker(kind: str) -> ThreadWorker:
        return ThreadWorker(f"{name}-{kind}", lambda e: observer.fail(kind, e), finish=False)

    digests = worker("digests")
    digests.submit(lambda: load_increments(context.settings.update_precision), lambda _: None)
    observer: ObserverActor = ObserverActor(
        name,
        context,
        worker=digests,
        evaluator=evaluator or worker("evaluation"),
        evaluate=evaluate,
        report=report,
        failed=failed,
        interval_s=interval_s,
        rng=rng or chance(),
    )
    return observer


def make_syncer(
    name: str,
    context: Context,
    *,
    disk: Disk,
    credentials: Credentials,
    shards: int,
    workers: SyncerWorkers | None = None,
    optimizer: OuterOptimizer | None = None,
    rng: random.Random | None = None,
    initial: Callable[[], Sequence[Floats]] | None = None,
    may_return: bool = False,
    hooks: Hooks | None = None,
    follower: Follower | None = None,
) -> SyncerActor:
    """Make the actor of a syncer.

    Whoever opens the disk of the journal closes it. `initial` reads version 0 of a run that has no
    journal; None if a learner is to send it. `may_return` says whether members may have outlived
    the journal of a run that has none.
    """
    if workers is None:
        workers = worker_threads(name, lambda error: syncer.fail("worker", error))
        workers.merging.submit(warm_up, lambda _: None)
        workers.merging.submit(
            lambda: load_increments(context.settings.update_precision), lambda _: None
        )
        workers.inspecting.submit(lambda: load_loops(context.settings.precision), lambda _: None)
    syncer: SyncerActor = SyncerActor(
        name,
        context,
        disk=disk,
        workers=workers,
        optimizer=optimizer or outer_optimizer(context.settings.outer),
        credentials=credentials,
        shards=shards,
        rng=rng or chance(),
        initial=initial,
        returns_s=waits_s(context.settings.timing) if may_return else None,
        hooks=hooks,
        follower=follower,
    )
    return syncer


# --- a syncer and the run's folder ------------------------------------------------------------


def journal_disk(folder: Path) -> RealDisk:
    """Lock the journal in a run's folder for this process alone, and return its disk.

    On a file system without locks the newest start owns the journal (`Journal.check_owner`).
    """
    lock = lock_folder(folder / JOURNAL, JOURNAL_LOCK, "syncer")
    return epoch_disk(folder, JOURNAL, lock)


def read_initial(path: Path | None, layout: Layout) -> Callable[[], Sequence[Floats]] | None:
    """Return a function that reads version 0 from the file, or None if no file is given."""
    return None if path is None else partial(read_values, path, layout)


def hooks_of(
    folder: Path, spec: RunSpec, context: Context, ready: Callable[[], object] | None = None
) -> Hooks:
    """Return the hooks by which a syncer exports the final values to its run's folder.

    If an export fails, the context's tape has it. `ready` is called when the syncer has read its
    journal and listens.
    """

    def export(values: list[Floats], cut: FinalVersions) -> None:
        metadata = metadata_of(spec, context.layout.fingerprint, cut)
        write_model(folder / FINAL_FILE, context.layout, values, metadata)

    def leave_behind(values: list[Floats], cut: FinalVersions) -> None:
        try:
            export(values, cut)
        except DiskError as error:  # the journal has the values: only this copy is lost
            context.tape.write(0.0, SYNCER, process_entries.Disk(str(error)))

    return Hooks(
        ready=ready,
        export=export,
        stopped=leave_behind,
        report=lambda state: msgspec.json.encode(share_of(state)),
    )
