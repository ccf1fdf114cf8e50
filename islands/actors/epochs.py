"""Epochs of a role that is started again and again: each start takes one, higher than all before.

    epoch.a, epoch.b   two slots in the folder: the newest epoch, and the one before it
    epoch.c            a copy of the newest; a `RealDisk` keeps it beside its folder, so it tells of
                       a folder that is gone

A start that uses an epoch which another one used before is taken for that one, so a record that is
missing or not whole counts as one higher than what is known: it may have been the newest. Whatever
was damaged is named by whoever starts. The copy is made last, so where there is none and no slot is
whole, the first start ever was killed while it wrote, and has used none.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import IO

from islands.errors import DamagedError
from islands.files.disk import RealDisk
from islands.files.slots import Slots

EPOCH = "epoch"
COPY = "epoch.c"
ANEW = b"anew"
"""In the copy: the folder was put aside on purpose, and begins anew under higher epochs."""


@dataclass(frozen=True, slots=True)
class KnownEpochs:
    """What the records of a disk tell.

    Attributes:
        epochs: Those of the records that are whole.
        damaged: Files that are missing or not whole; empty where nothing was ever written.
        gone: The folder held a role's files, and holds none of its epochs now.
        unused: What is damaged was written by a start that did not get as far as to use it.
    """

    epochs: tuple[int, ...]
    damaged: tuple[str, ...]
    gone: bool = False
    unused: bool = False


def known_epochs(slots: Slots) -> KnownEpochs:
    """Read all records of the epoch.

    Raises:
        DiskError: the disk is broken.
    """
    found = slots.look(EPOCH)
    records = [(head.file, slots.load(head)) for head in found.heads]
    epochs = [record.sequence for _, record in records if record is not None]
    damaged = [*found.damaged, *(file for file, record in records if record is None)]
    copy = slots.alone(COPY)
    if copy.record is not None and copy.record.metadata != ANEW and not found.there:
        return KnownEpochs((copy.record.sequence,), found.files, gone=True)
    if copy.record is not None:
        epochs.append(copy.record.sequence)
        damaged += found.missing if copy.record.metadata != ANEW else []
    elif copy.there or found.there:
        damaged.append(COPY)
    unused = bool(damaged) and not epochs and not copy.there
    return KnownEpochs(tuple(epochs), tuple(sorted({*damaged})), unused=unused)


def next_epoch(known: KnownEpochs, at_least: int = 1) -> int:
    """The epoch that the next start takes.

    Raises:
        DamagedError: no record is whole, and `at_least` is no help.
    """
    if known.damaged and not known.epochs and not known.unused and at_least <= 1:
        raise DamagedError(
            f"none of {', '.join(known.damaged)} is whole, so nobody knows which epochs were used"
        )
    step = 2 if known.damaged else 1
    return max(at_least, max(known.epochs, default=0) + step)


def take_epoch(slots: Slots, at_least: int = 1) -> tuple[int, KnownEpochs]:
    """Take a new epoch; durable when this returns.

    Returns:
        It, and what was known before.

    Raises:
        DamagedError: as of `next_epoch`.
        DiskError: the disk is full or broken.
    """
    known = known_epochs(slots)
    epoch = next_epoch(known, at_least)
    slots.write(EPOCH, epoch)
    slots.write_alone(COPY, epoch)
    return epoch, known


def newest_epoch(slots: Slots) -> int:
    """The highest epoch in the folder; 0 if there is none."""
    return max((record.sequence for record in slots.held(EPOCH)), default=0)


def begin_anew(slots: Slots, used: KnownEpochs, at_least: int) -> None:
    """Let the next start begin in an empty folder, under epochs that nobody has used.

    Args:
        slots: of the folder, of which all else was put aside.
        used: epochs that were known before that.
        at_least: of an epoch, where none was known.
    """
    epoch = next_epoch(used, 1 if used.epochs else at_least)
    slots.write_alone(COPY, epoch, ANEW)


def epoch_disk(folder: Path, role: str, lock: IO[bytes] | None = None) -> RealDisk:
    """The disk of a role in a run's folder; the copy of its epoch lies beside.

    Raises:
        JournalError: it cannot be made.
    """
    return RealDisk(folder / role, lock, {COPY: folder / f"{role}.epoch"})
