"""Envelopes as msgpack frames. No other file imports msgpack.

An envelope becomes one head frame and, if it has a payload, chunk frames. Each frame is one
msgpack document of at most one chunk, because a websocket message cannot be fragmented and a large
one stalls the loop. Each has a checksum, a CRC-32 for heads and that of `checksums` for data:

    head    [0, checksum, header]                       header: bytes of the header document
    chunk   [1, checksum, envelope id, buffer, offset, data]

The checksum also covers the sequence number of the frame on its socket, which is not sent: either
side counts from 0. So a lost or duplicated frame makes the next one fail its checksum, even if a
flipped bit turned the lost one into a message of another kind.

The header document is a map: type, sender, recipient, id, body, and if there is a payload, the
sizes of its buffers. The frame around it has one fixed encoding, so it is read with `struct`, and
data goes from the frame straight into the receiver's buffer.

The receiver trusts nothing. It checks limits before it allocates; refuses repeated keys, keys
other than strings and integers, extension types and broken UTF-8; converts the body to its
registered dataclass with types checked; and takes chunks only in order. It ignores fields that it
does not know, so that it understands a newer peer.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import msgpack  # noqa: TID251  the codec
import msgspec

from messaging.codec.checksums import checksum
from messaging.codec.limits import Limits, check_document
from messaging.envelope import Envelope, tag_of
from messaging.errors import EncodeError, FrameError, LocalFault

Allocate = Callable[[Envelope, tuple[int, ...]], Sequence[memoryview]]
"""Returns writable buffers of the stated sizes for the payload of the envelope whose head arrived.
It may raise `FrameError` if the receiver's own layout expects something else."""

_HEAD = struct.Struct(">BBBIBI")  # list of 3; 0; uint32 crc; bin32 size
_HEAD_TAGS = (0x93, 0x00, 0xCE, 0xC6)
_CHUNK = struct.Struct(">BBBIBQBIBQBI")  # list of 6; 1; crc; uint64 id; uint32; uint64; bin32 size
_CHUNK_TAGS = (0x96, 0x01, 0xCE, 0xCF, 0xCE, 0xCF, 0xC6)
_POSITION = struct.Struct(">QIQ")
"""Envelope, buffer, offset: the checksum of a chunk covers them too."""
_NUMBER_MASK = 0xFFFF_FFFF

CHUNK_PREFIX_BYTES = _CHUNK.size
"""Length of a chunk frame up to its data."""
_ALIGNMENT_BYTES = 64
"""Payloads are split at multiples of this, so that checksum and mask process whole words."""
_BYTES_TYPES = (bytes, bytearray, memoryview)

_Size = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class _Header:
    """The header document."""

    type: str
    sender: str
    recipient: str
    id: _Size
    body: dict[str, Any]
    payload: tuple[_Size, ...] = ()


class Codec:
    """Turns envelopes of registered message types into bytes and back.

    Its `limits` on sent and on accepted messages may be replaced at any time.
    """

    def __init__(self, message_types: Sequence[type], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._types: dict[str, type] = {}
        for kind in message_types:
            tag = tag_of(kind)
            if tag in self._types:
                raise LocalFault(f"two message types have the tag {tag!r}")
            try:
                msgspec.json.Decoder(kind)  # builds the type checks, so that a mistake shows here
            except TypeError as error:
                raise LocalFault(f"{tag!r} cannot be a message: {error}") from error
            self._types[tag] = kind
        self._tags = {kind: tag for tag, kind in self._types.items()}

    @property
    def message_bytes(self) -> int:
        """The size from which on a control socket refuses a message: it carries heads alone."""
        return _HEAD.size + self.limits.header_bytes + 1

    def size_bytes(self, envelope: Envelope) -> int:
        """Bytes of an envelope on a wire, without the overhead of its frames."""
        return len(self.encode(envelope)) + sum(buffer.nbytes for buffer in envelope.payload)

    def encode(self, envelope: Envelope) -> bytes:
        """Return the header document: everything except the payload's bytes."""
        name = self._tags.get(type(envelope.body))
        if name is None:
            kind = type(envelope.body).__name__
            raise EncodeError(f"{kind!r} is not a registered message type")
        document: dict[str, Any] = {
            "type": name,
            "sender": envelope.sender,
            "recipient": envelope.recipient,
            "id": envelope.id,
        }
        if envelope.payload:
            document["payload"] = [buffer.nbytes for buffer in envelope.payload]
        try:
            document["body"] = msgspec.to_builtins(envelope.body, builtin_types=_BYTES_TYPES)
            data = cast("bytes", msgpack.packb(document))
            self._header_of(data)
        except (TypeError, ValueError, OverflowError, FrameError) as error:
            raise EncodeError(f"a {name!r} cannot be sent: {error}") from error
        return data

    def decode(self, data: bytes) -> tuple[Envelope, tuple[int, ...]]:
        """Return the envelope of a header document, without payload, and its buffers' sizes."""
        header = self._header_of(data)
        kind = self._types.get(header.type)
        if kind is None:
            raise FrameError(f"unknown message type {header.type!r}")
        try:
            body: object = msgspec.convert(header.body, kind, builtin_types=_BYTES_TYPES)
        except msgspec.ValidationError as error:
            raise FrameError(f"not a valid {header.type!r}: {error}") from error
        return Envelope(header.sender, header.recipient, header.id, body), header.payload

    def _header_of(self, data: bytes) -> _Header:
        """Decode a header document, and check all of it but its body."""
        check_document(data, self.limits)
        try:
            document = msgpack.unpackb(
                data, strict_map_key=False, object_pairs_hook=_map_of_unique_keys
            )
            header = msgspec.convert(document, _Header, builtin_types=_BYTES_TYPES)
        except (ValueError, TypeError) as error:  # includes UnicodeDecodeError, ValidationError
            raise FrameError(f"not a valid header: {error}") from error
        self._check_header(header)
        return header

    def _check_header(self, header: _Header) -> None:
        limits = self.limits
        longest = max(len(header.type), len(header.sender), len(header.recipient))
        if longest > limits.name_characters:
            raise FrameError(f"a name of {longest} characters")
        if len(header.payload) > limits.payload_buffers:
            raise FrameError(f"a payload of {len(header.payload)} buffers")
        allowed = limits.payload_of(header.type)
        if sum(header.payload) > allowed:
            raise FrameError(
                f"a payload of {sum(header.payload)} bytes; at most {allowed} are allowed with a "
                f"{header.type!r}"
            )


class Assembler:
    """Reassembles envelopes from the frames of one direction of one socket.

    Envelopes must come one after the other, their chunks in order, without duplicates or gaps;
    anything else is refused. After an error, close the link; the partial envelope is discarded.
    """

    def __init__(self, codec: Codec, allocate: Allocate | None = None) -> None:
        """Wait for a head; without `allocate`, payloads get fresh buffers, within the limits."""
        self._codec = codec
        self._allocate = allocate or _fresh_buffers
        self._head: Envelope | None = None
        self._buffers: tuple[memoryview, ...] = ()
        self._index = 0
        self._offset = 0
        self._chunk = memoryview(b"")
        self._expected = 0
        self._number = 0  # of the next frame

    def feed(self, frame: bytes) -> Envelope | None:
        """Accept a head; return its envelope if that has no payload."""
        if frame[:2] != bytes(_HEAD_TAGS[:2]):
            raise FrameError("neither a head nor a chunk with data")
        if self._head is not None:
            raise FrameError("a head before the last envelope was complete")
        if len(frame) < _HEAD.size:
            raise FrameError("a head that is cut short")
        array, zero, uint32, checksum, bin32, size = _HEAD.unpack_from(frame)
        header = frame[_HEAD.size :]
        if (array, zero, uint32, bin32) != _HEAD_TAGS or size != len(header):
            raise FrameError("a head of another form")
        if _head_checksum(header, self._number) != checksum:
            raise FrameError("a damaged head, or a frame was lost or came twice")
        self._number += 1
        envelope, sizes = self._codec.decode(header)
        buffers = tuple(self._allocate(envelope, sizes)) if sizes else ()
        if tuple(buffer.nbytes for buffer in buffers) != sizes:
            raise LocalFault("the buffers given are not of the sizes asked for")
        self._head = envelope
        self._buffers = buffers
        return self._completed()

    def begin_chunk(self, prefix: bytes, data_bytes: int) -> memoryview:
        """Check a chunk's prefix, and return the buffer into which its data must be written.

        Call `end_chunk` next, once the data is there.
        """
        if self._head is None:
            raise FrameError("a chunk without a head")
        fields = _CHUNK.unpack(prefix)
        expected, number, index, offset, size = fields[3::2][:5]
        if (*fields[:3], *fields[4::2]) != _CHUNK_TAGS or size != data_bytes:
            raise FrameError("a chunk of another form")
        if (number, index, offset) != (self._head.id, self._index, self._offset):
            raise FrameError("a chunk out of order")
        buffer = self._buffers[index]
        if not 0 < size <= buffer.nbytes - offset:
            raise FrameError("a chunk beyond the end of its buffer")
        self._expected = expected
        self._chunk = buffer[offset : offset + size]
        return self._chunk

    def end_chunk(self) -> Envelope | None:
        """Verify the data that was written; return the envelope if it is complete."""
        assert self._head is not None
        position = (self._head.id, self._index, self._offset)
        if _chunk_checksum(self._number, position, self._chunk) != self._expected:
            raise FrameError("a damaged chunk, or a frame was lost or came twice")
        self._number += 1
        self._offset += self._chunk.nbytes
        self._chunk = memoryview(b"")
        return self._completed()

    def _completed(self) -> Envelope | None:
        """Advance past full buffers; return the envelope after the last one."""
        while self._index < len(self._buffers):
            if self._offset < self._buffers[self._index].nbytes:
                return None
            self._index += 1
            self._offset = 0
        assert self._head is not None
        head, payload = self._head, tuple(buffer.toreadonly() for buffer in self._buffers)
        self._head, self._buffers, self._index = None, (), 0
        return Envelope(head.sender, head.recipient, head.id, head.body, payload)


def is_chunk(frame: bytes) -> bool:
    """Whether the first bytes of a frame are those of a chunk."""
    return frame[:2] == bytes(_CHUNK_TAGS[:2])


def head_frame(header: bytes, number: int) -> bytes:
    """Return the frame that announces an envelope; its payload follows by `chunk_parts`."""
    array, zero, uint32, bin32 = _HEAD_TAGS
    value = _head_checksum(header, number)
    return _HEAD.pack(array, zero, uint32, value, bin32, len(header)) + header


def chunk_parts(
    envelope: Envelope, chunk_bytes: Callable[[], int], numbers: Iterator[int]
) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the frames of an envelope's payload as prefix and data, without a copy.

    Its head frame must be sent first. `chunk_bytes` is called before each frame for its largest
    size; `numbers` yields the sequence number of each frame on its socket.
    """
    array, one, uint32, uint64, _, _, bin32 = _CHUNK_TAGS
    for index, buffer in enumerate(envelope.payload):
        whole = buffer.cast("B") if buffer.nbytes else buffer
        offset = 0
        while offset < buffer.nbytes:
            step = (chunk_bytes() - CHUNK_PREFIX_BYTES) // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES
            data = whole[offset : offset + step]
            value = _chunk_checksum(next(numbers), (envelope.id, index, offset), data)
            prefix = _CHUNK.pack(
                *(array, one, uint32, value, uint64, envelope.id, uint32, index, uint64, offset),
                *(bin32, len(data)),
            )
            yield prefix, data
            offset += step


def _head_checksum(header: bytes, number: int) -> int:
    """Return a CRC that differs for each number; that of number 0 is the plain CRC."""
    return zlib.crc32(header, number & _NUMBER_MASK)


def _chunk_checksum(number: int, position: tuple[int, int, int], data: memoryview) -> int:
    """Return a checksum that differs for each number and each position of a chunk."""
    return checksum(data, zlib.crc32(_POSITION.pack(*position), number & _NUMBER_MASK))


def _fresh_buffers(_: Envelope, sizes: tuple[int, ...]) -> Sequence[memoryview]:
    return [memoryview(bytearray(size)) for size in sizes]


def _map_of_unique_keys(pairs: list[tuple[object, object]]) -> dict[object, object]:
    """Build a map, and refuse equal keys, of which msgpack would silently keep the last."""
    if not pairs:
        return {}
    result = dict(pairs)
    if len(result) != len(pairs):
        raise FrameError("a map with a repeated key")
    for key in result:
        if type(key) is not str and type(key) is not int:
            raise FrameError("a map with a key that is neither a string nor an integer")
    return result
