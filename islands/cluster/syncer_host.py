"""What a syncer needs around it on a host: its journal, its worker, what it leaves behind.

The same for a syncer in a process of its own and for one beside the supervisor.
"""

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.actors.credentials import Credentials
from islands.actors.epochs import epoch_disk
from islands.actors.role_actor import Surroundings
from islands.cluster.run_claim import JOURNAL, JOURNAL_LOCK
from islands.cluster.summary import share_of
from islands.errors import DiskError
from islands.files.disk import Disk, RealDisk
from islands.files.folder_lock import lock_folder
from islands.identities import Cut
from islands.numerics.merge import warm_up
from islands.numerics.outer import Sgd
from islands.settings.run_spec import RunSpec
from islands.syncer.actor import SyncerActor
from islands.syncer.hooks import Hooks
from islands.syncer.workers import worker_threads
from islands.tape import process_entries
from islands.training.export import FINAL_FILE, metadata_of, write_model
from islands.training.warm_start import read_values


def journal_disk(folder: Path) -> RealDisk:
    """Take the journal in a run's folder for this process alone.

    On a file system without locks nobody is kept out; there the newest start owns the journal, and
    an older one ends as soon as it sees that (`Journal.check_owner`).

    Args:
        folder: of the run.

    Raises:
        UserError: another syncer uses it, or it cannot be used.
    """
    place = folder / JOURNAL
    lock = lock_folder(place, JOURNAL_LOCK, "syncer")
    return epoch_disk(folder, JOURNAL, lock)


def make_syncer(
    name: str,
    around: Surroundings,
    *,
    folder: Path,
    spec: RunSpec,
    shards: int,
    disk: Disk,
    credentials: Credentials,
    start_from: Path | None = None,
    ready: Callable[[], object] | None = None,
) -> SyncerActor:
    """A syncer whose journal, and in the end the final values, lie in a folder.

    Args:
        name: its name in the run.
        around: where it lives.
        folder: of the run.
        spec: what the run is.
        disk: the journal's, from `journal_disk`; it is closed when the syncer has ended.
        shards: virtual shards of one pass over the data.
        credentials: to check admissions.
        start_from: file with the initial values, for a run that has no journal.
        ready: called when it has read its journal and listens.
    """
    workers = worker_threads(name, lambda error: syncer.fail("worker", error))

    def initial() -> Sequence[NDArray[np.float32]]:
        assert start_from is not None, "asked for only if there is a file"
        return read_values(start_from, around.layout)

    def export(values: list[NDArray[np.float32]], cut: Cut) -> None:
        metadata = metadata_of(spec, around.layout, cut)
        write_model(folder / FINAL_FILE, around.layout, values, metadata)

    def leave_behind(values: list[NDArray[np.float32]], cut: Cut) -> None:
        try:
            export(values, cut)
        except DiskError as error:  # the journal has it all: nothing is lost but this copy
            around.tape.write(0.0, name, process_entries.Disk(str(error)))

    syncer: SyncerActor = SyncerActor(
        name,
        around,
        disk=disk,
        workers=workers,
        optimizer=Sgd.of(around.settings.outer),
        credentials=credentials,
        shards=shards,
        rng=random.Random(os.urandom(8)),
        initial=None if start_from is None else initial,
        hooks=Hooks(
            ready=ready,
            export=export,
            stopped=leave_behind,
            report=lambda: msgspec.json.encode(share_of(syncer.state)),
        ),
    )
    workers.merging.submit(warm_up, lambda _: None)
    return syncer
