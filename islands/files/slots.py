"""Records that survive a crash: a name has two slots, and a torn write destroys only the older.

A new record overwrites the older one of the two, so a crash of the host loses the record that was
being written, and never the one before it. A slot is used only if its digest is right. The first
write of a name makes both slots, one of them void: so a slot that is missing later has been lost.

    slot = magic · header length · header (JSON) · metadata · arrays · 128 bits of BLAKE3 of it all

Arrays may be most of a host's memory, so no byte of a slot is read twice or is twice in memory: a
head tells what a slot claims to hold, and `load` reads the rest into the arrays that it returns,
while it computes the digest of what it reads.
"""

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

import msgspec
import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from islands.files.disk import Disk, DiskFile
from islands.protocol.errors import JournalError
from islands.protocol.identities import Version

FORMAT = b"ISLJ"
MAGIC = FORMAT + b"0002"
"""First bytes of every slot; the last four change whenever older records cannot be read."""
DIGEST_BYTES = 16
CHUNK_BYTES = 2**22
"""Bytes of one read: they are still in the cache when the digest is computed."""
HEADER_BYTES_MAX = 2**20
SLOTS = ("a", "b")
VOID = -1
"""Sequence number of a slot that was made and never written; see the module's docstring."""
_START = len(MAGIC) + 8

Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class _Array:
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        try:
            dtype = np.dtype(self.dtype)
        except (TypeError, SyntaxError) as error:  # NumPy parses a string with a comma
            raise ValueError(self.dtype) from error
        if dtype.hasobject or any(length < 0 for length in self.shape):
            raise ValueError(self.dtype, self.shape)
        return math.prod(self.shape) * dtype.itemsize

    def empty(self) -> NDArray[np.generic] | None:
        """Allocate the array; return None if no array can have this shape and type."""
        try:
            return np.empty(self.shape, self.dtype)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class _Header:
    sequence: int
    metadata_bytes: int
    version: Version | None = None
    arrays: tuple[_Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """What the slot in a file claims to hold, `content` up to the metadata; `load` verifies it."""

    file: str
    header: _Header
    content: bytes

    @property
    def sequence(self) -> int:
        """Sequence number of the record; the newer of two has the higher one."""
        return self.header.sequence

    @property
    def version(self) -> Version | None:
        return self.header.version


@dataclass(frozen=True, slots=True)
class Record:
    """The verified content of one slot."""

    sequence: int
    version: Version | None
    metadata: bytes
    arrays: dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class SlotPair:
    """The state of the two files of a name: the heads of those that claim to hold a record.

    `damaged` are files without a readable head, and files that are missing but existed before.
    """

    files: tuple[str, ...]
    heads: list[Head]
    damaged: list[str]
    missing: list[str]

    @property
    def there(self) -> bool:
        return len(self.missing) < len(self.files)


@dataclass(frozen=True, slots=True)
class SingleRecord:
    """A record without a second slot: the record if it is whole, and whether its file exists."""

    record: Record | None
    there: bool


class Slots:
    """Reads and writes the records on one disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._given_up = False
        self._sequences: dict[str, dict[str, int]] = {}
        self._paired: dict[str, None] = {}

    def heads(self, name: str) -> list[Head]:
        return self.look(name).heads

    def look(self, name: str) -> SlotPair:
        """Inspect the two files of a name, without reading their arrays, which may be large."""
        files = _files(name)
        heads = {file: self._head(file) for file in files}
        missing = [file for file in files if heads[file] is None and not self._is_there(file)]
        begun = [file for file, head in heads.items() if head is None or head.sequence != VOID]
        lost = missing if len(missing) == 1 and begun != missing else []
        torn = [file for file, head in heads.items() if head is None and file not in missing]
        held = [head for head in heads.values() if head is not None and head.sequence != VOID]
        return SlotPair(files, held, [*torn, *lost], missing)

    def alone(self, file: str) -> SingleRecord:
        """Read a record that has no second slot."""
        head = self._head(file)
        record = None if head is None else self.load(head)
        return SingleRecord(record, self._is_there(file))

    def write_alone(self, file: str, sequence: int, metadata: bytes = b"") -> None:
        """Write a record that has no second slot; durable when this returns."""
        self._disk.write(file, _parts(sequence, metadata, None, {}))
        self._disk.sync(file)

    def void(self, file: str) -> None:
        """Overwrite a slot with a valid one that holds no record; durable when this returns."""
        self.write_alone(file, VOID)

    def _is_there(self, name: str) -> bool:
        file = self._disk.open(name)
        if file is not None:
            file.close()
        return file is not None

    def other_format(self, names: Iterable[str]) -> str | None:
        """Return the magic of these names' slots, if another version wrote all that exist."""
        written = {self._magic(file) for name in names for file in _files(name)}
        others = sorted(one for one in written if one.startswith(FORMAT) and one != MAGIC)
        return others[-1].decode(errors="replace") if others and MAGIC not in written else None

    def _magic(self, name: str) -> bytes:
        file = self._disk.open(name)
        if file is None:
            return b""
        with closing(file):
            start = bytearray(len(MAGIC))
            file.read_into(memoryview(start))
            return bytes(start)

    def load(self, head: Head) -> Record | None:
        """Read and verify a slot's record; return None if it is not whole."""
        header, digest = head.header, blake3(head.content)
        file = self._disk.open(head.file, len(head.content))
        if file is None:
            return None
        with closing(file):
            metadata = bytearray(header.metadata_bytes)
            if not self._fill(file, memoryview(metadata), digest.update):
                return None
            arrays: dict[str, NDArray[np.generic]] = {}
            for stated in header.arrays:
                array = stated.empty()
                if array is None or not self._fill(file, _bytes_of(array), digest.update):
                    return None
                arrays[stated.name] = array
            stated_digest = bytearray(DIGEST_BYTES)
            file.read_into(memoryview(stated_digest))
        if digest.digest(length=DIGEST_BYTES) != stated_digest:
            return None
        return Record(header.sequence, header.version, bytes(metadata), arrays)

    def held(self, name: str) -> list[Record]:
        """Return the records of a name that are whole, two at most."""
        return [record for record in map(self.load, self.heads(name)) if record is not None]

    def keep(self, name: str, head: Head | None) -> None:
        """Make the next write overwrite the slot other than `head`'s; either if `head` is None.

        With this the first write need not find out which slot is older.
        """
        self._sequences[name] = dict.fromkeys(_files(name), VOID)
        if head is not None:
            self._sequences[name][head.file] = head.sequence

    def give_up(self) -> None:
        """Abort reads on another thread soon, with a JournalError."""
        self._given_up = True

    def write(
        self,
        name: str,
        sequence: int,
        metadata: bytes = b"",
        version: Version | None = None,
        arrays: Arrays | None = None,
    ) -> None:
        """Write a record over the older one of its name; durable when this returns."""
        known = self._known(name)
        older = min(known, key=lambda file: (known[file], file))
        if name not in self._paired:
            for file in _files(name):
                if file != older and not self._is_there(file):
                    self.void(file)
            self._paired[name] = None
        known[older] = VOID
        self._disk.write(older, _parts(sequence, metadata, version, arrays or {}))
        self._disk.sync(older)
        known[older] = sequence

    def _known(self, name: str) -> dict[str, int]:
        """Return the sequence numbers of a name's two files; `VOID` if no whole record is there."""
        if name not in self._sequences:
            whole = {h.file: h.sequence for h in self.heads(name) if self.load(h) is not None}
            self.keep(name, None)
            self._sequences[name] |= whole
        return self._sequences[name]

    def _head(self, name: str) -> Head | None:
        file = self._disk.open(name)
        if file is None:
            return None
        with closing(file):
            start = bytearray(_START)
            if file.read_into(memoryview(start)) < _START or start[: len(MAGIC)] != MAGIC:
                return None
            (length,) = struct.unpack("<Q", start[len(MAGIC) :])
            if length > HEADER_BYTES_MAX:
                return None
            text = bytearray(length)
            if file.read_into(memoryview(text)) < length:
                return None
            header = _decoded(text)
            if header is None or _size_bytes(header, length) != file.size:
                return None
            return Head(name, header, bytes(start + text))

    def _fill(
        self, file: DiskFile, buffer: memoryview, seen: Callable[[memoryview], object]
    ) -> bool:
        """Read until a buffer is full; return False if the file ends before that."""
        for at in range(0, len(buffer), CHUNK_BYTES):
            if self._given_up:
                raise JournalError("reading the journal was given up")
            chunk = buffer[at : at + CHUNK_BYTES]
            if file.read_into(chunk) < len(chunk):
                return False
            seen(chunk)
        return True


def _files(name: str) -> tuple[str, ...]:
    return tuple(f"{name}.{slot}" for slot in SLOTS)


def _parts(
    sequence: int, metadata: bytes, version: Version | None, arrays: Arrays
) -> list[bytes | memoryview]:
    """Return the whole content of a slot, digest included."""
    named = sorted(arrays.items())
    described = tuple(_Array(key, array.dtype.str, array.shape) for key, array in named)
    header = msgspec.json.encode(_Header(sequence, len(metadata), version, described))
    parts: list[bytes | memoryview] = [MAGIC, struct.pack("<Q", len(header)), header, metadata]
    parts += [_bytes_of(np.ascontiguousarray(array)) for _, array in named]
    digest = blake3()
    for part in parts:
        digest.update(part)
    return [*parts, digest.digest(length=DIGEST_BYTES)]


def _bytes_of(array: NDArray[np.generic]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _decoded(text: bytearray) -> _Header | None:
    try:
        return msgspec.json.decode(text, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _size_bytes(header: _Header, header_bytes: int) -> int | None:
    """Return the size of a whole slot with this header; None if the header is impossible."""
    try:
        arrays_bytes = sum(array.size_bytes for array in header.arrays)
    except ValueError:
        return None
    if header.metadata_bytes < 0:
        return None
    return _START + header_bytes + header.metadata_bytes + arrays_bytes + DIGEST_BYTES
