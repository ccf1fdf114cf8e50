"""Reads back what a run could be resumed from, and names each fault in a sentence."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from islands.files.disk import RealDisk
from islands.files.run_files import epoch_file
from islands.keeping.catalogue import held
from islands.keeping.finding import Found, Restored, read
from islands.keeping.manifest import Manifest
from islands.keeping.saving import CHECKPOINTS
from islands.keeping.store import FolderStore, Store
from islands.protocol.errors import DamagedError, IslandsError
from islands.settings.run_spec import not_whole
from islands.settings.run_spec import read as read_spec
from islands.syncer.journal import JOURNAL, Journal, Recovered


def faults_of_checkpoint(found: Found) -> list[str]:
    """Return what is wrong with a checkpoint: its bytes, its books or its values."""
    with tempfile.TemporaryDirectory(prefix="islands-verify-") as room:
        try:
            restored = read(found, Path(room))
        except IslandsError as error:
            return [str(error)]
        return [f"{found.told}: {fault}" for fault in _of_restored(restored)]


def _of_restored(restored: Restored) -> Iterator[str]:
    if restored.recovered.durable.fingerprint != restored.manifest.fingerprint:
        yield "its books are of another layout than its manifest tells of"
    yield from _of_journal(restored.recovered)


def _of_journal(recovered: Recovered) -> Iterator[str]:
    for name, book in recovered.durable.ledger.books.items():
        for index, account in enumerate(book.accounts):
            if account.imbalance:
                yield f"the ledger lacks {account.imbalance} tokens of {name}, fragment {index}"
    for index, arrays in enumerate(recovered.fragments):
        unfit = [name for name, array in arrays.items() if not bool(np.isfinite(array).all())]
        if unfit:
            yield f"fragment {index}: {', '.join(unfit)} holds numbers that are not finite"


def faults_of_run(folder: Path, stored: Store | None = None) -> list[str]:
    """Return what is wrong with a run's folder: its spec, its journal, its checkpoints.

    `stored` is where the run stores them, if not in its folder.
    """
    found: list[str] = []
    recovered = None
    try:
        told = read_spec(folder)
        found += [
            f"{folder / name} is damaged; the next start mends it" for name in not_whole(folder)
        ]
        fragments = 0 if told is None else len(told[1].layout.fragments)
        if fragments and (folder / JOURNAL).exists():
            journal = Journal(RealDisk(folder / JOURNAL), fragments)
            recovered = journal.recover()
            found += [f"{folder / JOURNAL}: {file} is not whole" for file in journal.damaged]
            if recovered is not None:
                found += [f"{folder / JOURNAL}: {fault}" for fault in _of_journal(recovered)]
        if told is not None and recovered is None and (folder / epoch_file(JOURNAL)).exists():
            found.append(f"{folder / JOURNAL} holds no whole version of all fragments")
    except IslandsError as error:
        found.append(str(error))
    store = stored or FolderStore(folder / CHECKPOINTS)
    for name, each in held(store).items():
        if isinstance(each, Manifest):
            found += faults_of_checkpoint(Found(store, each))
        else:
            found.append(f"{store.told(name)}: {each}")
    return found


def journal_is_whole(folder: Path) -> bool:
    """Return whether the run in a folder can go on from its journal; False if that is lost.

    Raises:
        IslandsError: the disk cannot be read at present, so nobody knows.
    """
    told = read_spec(folder)
    if told is None or not (folder / JOURNAL).exists():
        return False
    try:
        fragments = len(told[1].layout.fragments)
        return Journal(RealDisk(folder / JOURNAL), fragments).recover() is not None
    except DamagedError:
        return False
