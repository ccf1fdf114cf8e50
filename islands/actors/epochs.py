"""Epochs of a role's starts: each start takes an epoch that is higher than all before it.

    epoch.a.safetensors    two slots in the folder: the newest epoch, and the one before it
    epoch.b.safetensors
    epoch.c                a copy of the newest, in the same format; a `RealDisk` keeps it beside
                           its folder, so it reveals that a folder is gone

A record that is missing or damaged counts as one higher than the known ones: it may have been the
newest. The copy is written last, so if there is no copy and no slot is whole, the very first start
was killed while it wrote, and has used no epoch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import IO

from islands.files.disk import RealDisk
from islands.files.run_files import epoch_file
from islands.files.slots import Slots
from islands.protocol.errors import DamagedError

EPOCH = "epoch"
COPY = "epoch.c"


@dataclass(frozen=True, slots=True)
class KnownEpochs:
    """The epochs of the whole records on a disk, and the files that are damaged or missing.

    `gone`: the folder held a role's files, and holds none of its epochs now. `unused`: the start
    that wrote what is damaged ended before it used its epoch.
    """

    epochs: tuple[int, ...]
    damaged: tuple[str, ...]
    gone: bool = False
    unused: bool = False


def known_epochs(slots: Slots) -> KnownEpochs:
    held = slots.look(EPOCH)
    records = [(head.file, slots.load(head)) for head in held.heads]
    epochs = [record.sequence for _, record in records if record is not None]
    damaged = [*held.damaged, *(file for file, record in records if record is None)]
    copy = slots.alone(COPY)
    if copy.record is not None and not held.there:
        return KnownEpochs((copy.record.sequence,), held.files, gone=True)
    if copy.record is not None:
        epochs.append(copy.record.sequence)
        damaged += held.missing
    elif copy.there or held.there:
        damaged.append(COPY)
    unused = bool(damaged) and not epochs and not copy.there
    return KnownEpochs(tuple(epochs), tuple(sorted({*damaged})), unused=unused)


def next_epoch(known: KnownEpochs, at_least: int = 1) -> int:
    if known.damaged and not known.epochs and not known.unused and at_least <= 1:
        raise DamagedError(
            f"none of {', '.join(known.damaged)} is whole, so nobody knows which epochs were used"
        )
    step = 2 if known.damaged else 1
    return max(at_least, max(known.epochs, default=0) + step)


def take_epoch(slots: Slots, at_least: int = 1) -> tuple[int, KnownEpochs]:
    """Take a new epoch, which is durable when this returns; also return those known before."""
    known = known_epochs(slots)
    epoch = next_epoch(known, at_least)
    slots.write(EPOCH, epoch)
    slots.write_alone(COPY, epoch)
    return epoch, known


def newest_epoch(slots: Slots) -> int:
    return max((record.sequence for record in slots.held(EPOCH)), default=0)


def epoch_disk(folder: Path, role: str, lock: IO[bytes] | None = None) -> RealDisk:
    """The disk of a role in a run's folder; the copy of its epoch lies beside it."""
    return RealDisk(folder / role, lock, {COPY: folder / epoch_file(role)})
