"""Records that survive a crash: a name has two slots, and a new record replaces the older one.

A slot is a file of safetensors. A new record is written beside the older slot and renamed over it,
so a crash of the host loses the record that was being written, and none before it; and a hard link
to a slot keeps its content. A slot is used only if its digest is right. The first write of a name
makes both slots, one of them void: so a slot that is missing later has been lost.

    NAME.a.safetensors    the arrays as tensors, and as metadata: the format, the digest, the
    NAME.b.safetensors    record's number (`sequence`), its version, and its metadata (`books`)

The digest is 128 bits of BLAKE3 of the whole file, with zeros in place of its own digits. Arrays
may be most of a host's memory, so no byte of a slot is read twice or is twice in memory: a head
tells what a slot claims to hold, and `load` reads the arrays that it returns, while it computes the
digest of what it reads.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec
import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from islands.files.disk import Disk, DiskFile
from islands.files.tensor_files import (
    DTYPE_NAMES,
    DTYPES,
    HEADER_BYTES_MAX,
    LENGTH_BYTES,
    METADATA,
    Tensor,
    start_of_file,
    tensors_bytes,
)
from islands.files.whole_files import CHUNK_BYTES
from islands.protocol.errors import JournalError
from islands.protocol.identities import Version

FORMAT = "islands-journal-3"
"""The format of every slot; its number changes whenever older records cannot be read."""
DIGEST_BYTES = 16
SLOTS = ("a", "b")
VOID = -1
"""Sequence number of a slot that was made and never written; see the module's docstring."""
_START = f'{{"{METADATA}":{{"format":"{FORMAT}","blake3":"'.encode()
"""How every header begins, up to the digest."""
_FORMAT = re.compile(rb'\{"__metadata__":\{"format":"(islands-journal-\d+)"')
_NO_DIGEST = b"0" * (2 * DIGEST_BYTES)

Arrays = Mapping[str, NDArray[np.generic]]


class _Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metadata of a file of safetensors, which are strings, in their order."""

    format: str
    blake3: str
    sequence: str
    version: str = ""
    books: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """What a slot claims to hold, up to its arrays; `load` verifies it.

    `seen` is the digest of everything before the arrays, which begin at `arrays_at`.
    """

    file: str
    sequence: int
    version: Version | None
    books: str
    tensors: dict[str, Tensor]
    digest: str
    seen: blake3
    arrays_at: int


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

    def take(self, file: str, parts: Sequence[bytes | memoryview]) -> Head | None:
        """Write a slot as another disk has it; return its head, or None if it is not whole."""
        for other in _files(name_of(file)):
            if other != file and not self._is_there(other):
                self.void(other)
        self._disk.write(file, parts)
        head = self._head(file)
        return None if head is None or self.load(head) is None else head

    def digest(self, file: str) -> str:
        """Return the digest that a slot states; empty if it has none."""
        head = self._head(file)
        return "" if head is None else head.digest

    def void(self, file: str) -> None:
        """Replace a slot by a valid one that holds no record; durable when this returns."""
        self.write_alone(file, VOID)

    def _is_there(self, name: str) -> bool:
        file = self._disk.open(name)
        if file is not None:
            file.close()
        return file is not None

    def other_format(self, names: Iterable[str]) -> str | None:
        """Return the format of these names' slots, if another version wrote all that exist."""
        written = {self._format(file) for name in names for file in _files(name)}
        others = sorted(written - {FORMAT, ""})
        return others[-1] if others and FORMAT not in written else None

    def _format(self, name: str) -> str:
        file = self._disk.open(name, LENGTH_BYTES)
        if file is None:
            return ""
        with closing(file):
            start = bytearray(len(_START))
            file.read_into(memoryview(start))
        stated = _FORMAT.match(start)
        return "" if stated is None else stated[1].decode()

    def load(self, head: Head) -> Record | None:
        """Read and verify a slot's record; return None if it is not whole."""
        seen = head.seen.copy()
        arrays = self._arrays(head, seen.update) if head.tensors else {}
        if arrays is None or _digits(seen) != head.digest:
            return None
        return Record(head.sequence, head.version, head.books.encode(), arrays)

    def _arrays(
        self, head: Head, seen: Callable[[memoryview], object]
    ) -> dict[str, NDArray[np.generic]] | None:
        file = self._disk.open(head.file, head.arrays_at)
        if file is None:
            return None
        arrays: dict[str, NDArray[np.generic]] = {}
        with closing(file):
            for name, tensor in head.tensors.items():
                array = _empty(tensor)
                if array is None or not self._fill(file, _bytes_of(array), seen):
                    return None
                arrays[name] = array
        return arrays

    def held(self, name: str) -> list[Record]:
        """Return the records of a name that are whole, two at most."""
        return [record for record in map(self.load, self.heads(name)) if record is not None]

    def keep(self, name: str, head: Head | None) -> None:
        """Make the next write replace the slot other than `head`'s; either if `head` is None.

        With this the first write need not find out which slot is older.
        """
        self._sequences[name] = dict.fromkeys(_files(name), VOID)
        if head is not None:
            self._sequences[name][head.file] = head.sequence

    def newest(self, name: str) -> str | None:
        """Return the file of a name's newest record; None if there is none."""
        known = self._known(name)
        file = max(known, key=lambda each: (known[each], each))
        return None if known[file] == VOID else file

    def sequence(self, name: str) -> int:
        """Return the number of a name's newest record; `VOID` if there is none."""
        return max(self._known(name).values())

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
        """Replace the older record of a name; the new one is durable when this returns."""
        known = self._known(name)
        older = min(known, key=lambda file: (known[file], file))
        if name not in self._paired:
            for file in _files(name):
                if file != older and not self._is_there(file):
                    self.void(file)
            self._paired[name] = None
        self._disk.write(older, _parts(sequence, metadata, version, arrays or {}))
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
            length = bytearray(LENGTH_BYTES)
            if file.read_into(memoryview(length)) < LENGTH_BYTES:
                return None
            header_bytes = int.from_bytes(length, "little")
            if header_bytes > min(file.size, HEADER_BYTES_MAX):
                return None
            header = bytearray(header_bytes)
            if file.read_into(memoryview(header)) < header_bytes:
                return None
            return _decoded(name, length, header, file.size)

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
    return tuple(f"{name}.{slot}.safetensors" for slot in SLOTS)


def name_of(file: str) -> str:
    """Return the name whose record a file holds."""
    return file.partition(".")[0]


def _parts(
    sequence: int, metadata: bytes, version: Version | None, arrays: Arrays
) -> list[bytes | memoryview]:
    """Return the whole content of a slot; the arrays of the largest elements come first.

    So each array begins at a multiple of its elements' size, as some readers want.
    """
    named = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    for name, array in named:
        if array.dtype not in DTYPE_NAMES:
            raise JournalError(f"safetensors cannot hold {name}, an array of {array.dtype}")
    text = "" if version is None else str(version)
    stated = _Metadata(FORMAT, _NO_DIGEST.decode(), str(sequence), text, metadata.decode())
    start = start_of_file(stated, ((name, array.dtype, array.shape) for name, array in named))
    if len(start) > HEADER_BYTES_MAX:
        raise JournalError(
            f"a record of the journal has {len(start):,} bytes beside its arrays, above the "
            f"{HEADER_BYTES_MAX:,} of safetensors: set fragments to fewer, or start fewer learners"
        )
    data = [_bytes_of(np.ascontiguousarray(array)) for _, array in named]
    digest = blake3(start)
    for part in data:
        digest.update(part)
    at = LENGTH_BYTES + len(_START)
    return [start[:at], _digits(digest).encode(), start[at + len(_NO_DIGEST) :], *data]


def _digits(digest: blake3) -> str:
    return digest.hexdigest(length=DIGEST_BYTES)


def _bytes_of(array: NDArray[np.generic]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _decoded(file: str, length: bytearray, header: bytearray, size_bytes: int) -> Head | None:
    """Return the head of a slot of this size; None if its header is not one of that."""
    if not header.startswith(_START):
        return None
    try:
        parts = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(parts.pop(METADATA), type=_Metadata)
        tensors = {name: msgspec.json.decode(raw, type=Tensor) for name, raw in parts.items()}
        sequence = int(metadata.sequence)
        version = Version.parse(metadata.version) if metadata.version else None
    except ValueError:  # such as msgspec's errors, and that of text which is no UTF-8
        return None
    arrays_bytes, arrays_at = tensors_bytes(tensors.values()), LENGTH_BYTES + len(header)
    if arrays_bytes is None or arrays_at + arrays_bytes != size_bytes:
        return None
    header[len(_START) : len(_START) + len(_NO_DIGEST)] = _NO_DIGEST
    seen = blake3(length)
    seen.update(header)
    books, digest = metadata.books, metadata.blake3
    return Head(file, sequence, version, books, tensors, digest, seen, arrays_at)


def _empty(tensor: Tensor) -> NDArray[np.generic] | None:
    """Allocate an array; return None if no array can have this shape."""
    try:
        return np.empty(tensor.shape, DTYPES[tensor.dtype])
    except ValueError:
        return None
