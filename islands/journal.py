"""The syncer's journal: what it must know after a crash, written before anything is sent.

There are two slots per fragment and two for records without a fragment. A record goes to the slot
that holds the older of the two, so a torn write costs the record that was being written and never
the one before it. Every record carries the whole durable metadata (epoch, versions, ledger,
leases); with a fragment's record goes its value and its optimizer's state. Recovery takes the
metadata of the highest sequence number whose digest is right, and for every fragment the slot with
the version that this metadata names. Records are written in order, one at a time, so that is a
state that was committed.

The epoch is a record of its own, raised before a syncer does anything else. A writer whose epoch
is not the newest on the disk is fenced: it finds that out before every write and writes nothing.

    slot = magic · header length · header (JSON) · metadata (JSON) · arrays · blake2b-128 of it all

Disk use is bounded: 2 · (value + optimizer state) and two small files.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.errors import JournalError
from islands.messages import Version
from islands.ports import Disk
from islands.syncer.core import Durable

MAGIC = b"ISLJ0001"
DIGEST_BYTES = 16
SLOTS = ("a", "b")

Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class _Array:
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Header:
    sequence: int
    metadata_bytes: int
    version: Version | None = None
    arrays: tuple[_Array, ...] = ()


@dataclass(frozen=True, slots=True)
class _Slot:
    header: _Header
    metadata: bytes
    arrays: dict[str, NDArray[np.generic]]


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
        self._disk = disk
        self._names = [f"fragment-{index:05d}" for index in range(fragments)]
        self._sequences: dict[str, dict[str, int]] = {}
        self.epoch = 0
        self.sequence = 0

    def recover(self) -> Recovered | None:
        """Read what was committed; None if the run has no complete version yet.

        `sequence` is then that of the newest record, also if it is of no use: what is written
        from now on must be newer.

        Raises:
            JournalError: a fragment's committed version is in neither of its slots.
        """
        newest: _Slot | None = None
        slots: dict[str, list[_Slot]] = {}
        for name in ["metadata", *self._names]:
            slots[name] = [slot for slot in map(self._read, self._files(name)) if slot is not None]
            for slot in slots[name]:
                if newest is None or slot.header.sequence > newest.header.sequence:
                    newest = slot
        if newest is None:
            return None
        self.sequence = newest.header.sequence
        durable = msgspec.json.decode(newest.metadata, type=Durable)
        fragments: list[dict[str, NDArray[np.generic]]] = []
        for index, name in enumerate(self._names):
            published = durable.published[index]
            if published is None:
                return None
            held = [s for s in slots[name] if s.header.version == published.version]
            if not held:
                raise JournalError(
                    f"{name}: version {published.version} is committed and in neither slot; "
                    "restore the journal's folder from a copy"
                )
            fragments.append(held[0].arrays)
        return Recovered(durable, tuple(fragments))

    def begin_epoch(self, at_least: int) -> int:
        """Take a new epoch, higher than all on the disk; durable when this returns."""
        held = [slot.header.sequence for slot in map(self._read, self._files("epoch")) if slot]
        self.epoch = max([at_least, *(number + 1 for number in held)])
        self._write("epoch", _Header(self.epoch, 0), b"", {})
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
            JournalError: a syncer of a higher epoch owns the journal, or the disk fails.
        """
        held = [slot.header.sequence for slot in map(self._read, self._files("epoch")) if slot]
        if max(held, default=0) > self.epoch:
            raise JournalError(f"epoch {max(held)} owns the journal, this syncer is {self.epoch}")
        described = tuple(
            _Array(name, array.dtype.str, array.shape) for name, array in sorted(arrays.items())
        )
        header = _Header(sequence, len(metadata), version, described)
        name = "metadata" if fragment is None else self._names[fragment]
        self._write(name, header, metadata, arrays)

    def _files(self, name: str) -> tuple[str, str]:
        return (f"{name}.{SLOTS[0]}", f"{name}.{SLOTS[1]}")

    def _write(self, name: str, header: _Header, metadata: bytes, arrays: Arrays) -> None:
        files = self._files(name)
        known = self._sequences.setdefault(name, {})
        for file in files:
            if file not in known:
                slot = self._read(file)
                known[file] = -1 if slot is None else slot.header.sequence
        older = min(files, key=lambda file: (known[file], file))
        encoded = msgspec.json.encode(header)
        parts: list[bytes | memoryview] = [
            MAGIC,
            struct.pack("<Q", len(encoded)),
            encoded,
            metadata,
        ]
        parts += [
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            for _, array in sorted(arrays.items())
        ]
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for part in parts:
            digest.update(part)
        known[older] = -1
        self._disk.write(older, [*parts, digest.digest()])
        self._disk.sync(older)
        known[older] = header.sequence

    def _read(self, file: str) -> _Slot | None:
        """A slot whose digest is right; None for one that is missing or torn."""
        content = self._disk.read(file)
        start = len(MAGIC) + 8
        if content is None or len(content) < start + DIGEST_BYTES or content[: len(MAGIC)] != MAGIC:
            return None
        body = memoryview(content)[:-DIGEST_BYTES]
        if hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest() != content[-DIGEST_BYTES:]:
            return None
        (length,) = struct.unpack("<Q", content[len(MAGIC) : start])
        header = msgspec.json.decode(content[start : start + length], type=_Header)
        offset = start + length + header.metadata_bytes
        metadata = content[start + length : offset]
        arrays: dict[str, NDArray[np.generic]] = {}
        for described in header.arrays:
            dtype = np.dtype(described.dtype)
            count = int(np.prod(described.shape, dtype=np.int64))
            flat = np.frombuffer(content, dtype, count, offset)
            arrays[described.name] = flat.reshape(described.shape)
            offset += flat.nbytes
        return _Slot(header, metadata, arrays)


def encode(durable: Durable) -> bytes:
    """The metadata of a record, as it stands now."""
    return msgspec.json.encode(durable)
