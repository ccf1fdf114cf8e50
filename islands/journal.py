"""The syncer's journal: what it must know after a crash, written before anything is sent.

There are two slots per fragment and two for records without a fragment (`slots.py`), so a torn
write costs the record that was being written and never the one before it. Every record carries the
whole durable metadata (epoch, versions, ledger, leases); with a fragment's record goes its value
and its optimizer's state. Recovery takes the metadata of the highest sequence number, and for every
fragment the slot with the version that this metadata names. Records are written in order, one at a
time, so that is a state that was committed.

The epoch is a record of its own, raised before a syncer does anything else. A writer whose epoch
is not the newest on the disk is fenced: it finds that out before every write and writes nothing.

Disk use is bounded: 2 · (value + optimizer state) and two small files.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.errors import DamagedError, FencedError, JournalError
from islands.identities import Version
from islands.ports import Disk
from islands.slots import EPOCH, MAGIC, Arrays, Head, Record, Slots, newest_epoch, take_epoch
from islands.syncer.core import Durable


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a journal holds: the metadata, and per fragment its arrays (`value` and the state)."""

    durable: Durable
    fragments: tuple[dict[str, NDArray[np.generic]], ...]


class Journal:
    """One syncer's journal on one disk.

    Args:
        disk: where it lies.
        fragments: P of the plan.
    """

    def __init__(self, disk: Disk, fragments: int) -> None:
        """Look at the slots; nothing is written before `begin_epoch`."""
        self._slots = Slots(disk)
        self._names = [f"fragment-{index:05d}" for index in range(fragments)]
        self.epoch = 0
        self.sequence = 0

    def take_over(self) -> Recovered | None:
        """Take a new epoch, which fences an older syncer, then read what was committed.

        Raises:
            JournalError: as of `recover`; after a DiskError it may be tried again.
        """
        other = self._slots.other_format([EPOCH, "metadata", *self._names])
        if other is not None:
            raise _written_by_another(f"its records are {other}, not {MAGIC.decode()}")
        if not self.epoch:
            self.begin_epoch(1)
        recovered = self.recover()
        if recovered is not None and recovered.durable.epoch >= self.epoch:
            self.begin_epoch(recovered.durable.epoch + 1)  # the files of the epoch were lost
        return recovered

    def recover(self) -> Recovered | None:
        """Read what was committed; None if the run has no complete version yet.

        `sequence` is then that of the newest record, also if it is of no use: what is written
        from now on must be newer.

        Raises:
            DamagedError: a fragment's committed version is in neither of its slots.
            DiskError: the disk is broken.
            JournalError: the journal is that of another run.
        """
        heads = {name: self._slots.heads(name) for name in ["metadata", *self._names]}
        found = self._newest([head for name in heads for head in heads[name]])
        if found is None:
            return None
        newest, record = found
        self.sequence = record.sequence
        durable = _decoded(record.metadata)
        if len(durable.published) != len(self._names):
            raise JournalError(
                f"the journal is of another run: it has {len(durable.published)} fragments, "
                f"not {len(self._names)}; choose another folder"
            )
        for name, own in heads.items():  # so far, none but the newest is needed
            self._slots.keep(name, newest if newest in own else None)
        fragments: list[dict[str, NDArray[np.generic]]] = []
        for name, published in zip(self._names, durable.published, strict=True):
            if published is None:
                return None
            arrays = record.arrays if newest in heads[name] else None
            if arrays is None or newest.version != published.version:
                arrays = self._of_version(name, heads[name], published.version)
            fragments.append(arrays)
        return Recovered(durable, tuple(fragments))

    def give_up(self) -> None:
        """Recovery on another thread is to end soon, with a JournalError."""
        self._slots.give_up()

    def _newest(self, heads: list[Head]) -> tuple[Head, Record] | None:
        """The newest record that is whole; what lies beside it is not read."""
        for head in sorted(heads, key=lambda head: head.sequence, reverse=True):
            record = self._slots.load(head)
            if record is not None:
                return head, record
        return None

    def _of_version(
        self, name: str, heads: list[Head], version: Version
    ) -> dict[str, NDArray[np.generic]]:
        for head in heads:
            record = self._slots.load(head) if head.version == version else None
            if record is not None:
                self._slots.keep(name, head)
                return record.arrays
        raise DamagedError(
            f"{name}: version {version} is committed and in neither slot; "
            "restore the journal's folder from a copy"
        )

    def begin_epoch(self, at_least: int) -> int:
        """Take a new epoch, higher than all on the disk; durable when this returns."""
        self.epoch = take_epoch(self._slots, at_least)
        return self.epoch

    def write(
        self,
        sequence: int,
        metadata: bytes,
        fragment: int | None,
        version: Version | None,
        arrays: Arrays,
    ) -> None:
        """Make a record durable.

        Args:
            sequence: of the record; grows by one.
            metadata: `encode(durable)`.
            fragment: whose value goes with it; None for none.
            version: of that value.
            arrays: `value` and the optimizer's state.

        Raises:
            FencedError: a syncer of a higher epoch owns the journal.
            DiskError: the disk is full, read-only or broken; the same record may be tried again.
        """
        self.check_owner()
        name = "metadata" if fragment is None else self._names[fragment]
        self._slots.write(name, sequence, metadata, version, arrays)

    def check_owner(self) -> None:
        """See whether the journal is still this syncer's.

        Raises:
            FencedError: a syncer of a higher epoch owns it.
            DiskError: the disk is broken.
        """
        owner = newest_epoch(self._slots)
        if owner > self.epoch:
            raise FencedError(
                f"a newer syncer owns the journal: epoch {owner} owns the journal, this syncer is "
                f"{self.epoch}, so it ends; end the other one before this one is started again"
            )


def encode(durable: Durable) -> bytes:
    """The metadata of a record, as it stands now."""
    return msgspec.json.encode(durable)


def _decoded(metadata: bytes) -> Durable:
    try:
        return msgspec.json.decode(metadata, type=Durable)
    except msgspec.MsgspecError as error:
        raise _written_by_another(str(error)) from error


def _written_by_another(how: str) -> JournalError:
    return JournalError(
        f"the journal was written by another version of islands ({how}); go on with that version, "
        "or choose another folder"
    )
