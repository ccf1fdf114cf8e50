"""Records that survive a crash: two slots per name, of which a torn write costs only the older.

A record goes to the slot that holds the older of the two, so what was being written when the host
died is lost, and never the record before it. A slot is taken only if its digest is right.

    slot = magic · header length · header (JSON) · metadata · arrays · 128 bits of BLAKE3 of it all
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from islands.identities import Version
from islands.ports import Disk

MAGIC = b"ISLJ0001"
DIGEST_BYTES = 16
SLOTS = ("a", "b")
EPOCH = "epoch"

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
class Record:
    """What one slot holds; `sequence` tells which of two is newer."""

    sequence: int
    version: Version | None
    metadata: bytes
    arrays: dict[str, NDArray[np.generic]]


class Slots:
    """The records on one disk."""

    def __init__(self, disk: Disk) -> None:
        """Nothing is read or written yet."""
        self._disk = disk
        self._sequences: dict[str, dict[str, int]] = {}

    def held(self, name: str) -> list[Record]:
        """The one or two records of a name that are whole."""
        return [record for record in map(self._read, _files(name)) if record is not None]

    def write(
        self,
        name: str,
        sequence: int,
        metadata: bytes = b"",
        version: Version | None = None,
        arrays: Arrays | None = None,
    ) -> None:
        """Write a record over the older one of its name; durable when this returns.

        Raises:
            DiskError: the disk is full, read-only or broken.
        """
        named = sorted((arrays or {}).items())
        described = tuple(_Array(key, array.dtype.str, array.shape) for key, array in named)
        header = msgspec.json.encode(_Header(sequence, len(metadata), version, described))
        parts: list[bytes | memoryview] = [MAGIC, struct.pack("<Q", len(header)), header, metadata]
        parts += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for _, array in named]
        digest = blake3()
        for part in parts:
            digest.update(part)
        known = self._known(name)
        older = min(known, key=lambda file: (known[file], file))
        known[older] = -1
        self._disk.write(older, [*parts, digest.digest(length=DIGEST_BYTES)])
        self._disk.sync(older)
        known[older] = sequence

    def _known(self, name: str) -> dict[str, int]:
        """Sequence numbers in the two files of a name; −1 where there is nothing whole."""
        if name not in self._sequences:
            records = {file: self._read(file) for file in _files(name)}
            self._sequences[name] = {
                file: -1 if record is None else record.sequence for file, record in records.items()
            }
        return self._sequences[name]

    def _read(self, file: str) -> Record | None:
        content = self._disk.read(file)
        start = len(MAGIC) + 8
        if content is None or len(content) < start + DIGEST_BYTES or content[: len(MAGIC)] != MAGIC:
            return None
        body = memoryview(content)[:-DIGEST_BYTES]
        if blake3(body).digest(length=DIGEST_BYTES) != content[-DIGEST_BYTES:]:
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
        return Record(header.sequence, header.version, metadata, arrays)


def newest_epoch(slots: Slots) -> int:
    """The highest epoch on a disk; 0 if there is none."""
    return max((record.sequence for record in slots.held(EPOCH)), default=0)


def take_epoch(slots: Slots, at_least: int = 1) -> int:
    """Take a new epoch, higher than all on the disk; durable when this returns."""
    epoch = max(at_least, newest_epoch(slots) + 1)
    slots.write(EPOCH, epoch)
    return epoch


def _files(name: str) -> tuple[str, ...]:
    return tuple(f"{name}.{slot}" for slot in SLOTS)
