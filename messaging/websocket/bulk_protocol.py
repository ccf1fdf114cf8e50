"""Zero-copy bulk transfer over a websocket: RFC 6455 frames at the speed of the socket.

aiohttp opens the websocket; then this protocol takes its connection over. A reader of messages
copies every byte several times before it hands out a message. Here the socket's bytes arrive in
place: once the prefix of a chunk is read and checked, the system writes the rest directly into the
payload's own buffer. Sending passes the header and a view of the payload to the transport.

The protocol implements only what links use: whole binary messages, pings, close and empty pongs. It
refuses all else that the RFC allows, such as fragmented messages, as a fault of the peer.
"""

import asyncio
import secrets
import struct
from collections.abc import Callable
from typing import Protocol

from aiohttp import WSCloseCode, WSMsgType

from messaging.codec.checksums import mask_in_place, masked, rotated
from messaging.codec.frames import CHUNK_PREFIX_BYTES, Assembler, is_chunk
from messaging.envelope import Envelope
from messaging.errors import FrameError, RemoteFault

SCRATCH_BYTES = 1 << 12
CONTROL_BYTES_MAX = 125
WRITE_BUFFER_BYTES = 1 << 20
_SHORT, _LONG = struct.Struct(">H"), struct.Struct(">Q")
_TWO_BYTES, _EIGHT_BYTES = 126, 127
_HEADER_BYTES_MIN = 2
_LAST_PIECE = 0x80


BEATS_MAX = 8
"""Most signs of life of a peer between two keepalive checks; one comes in four of them."""


class TooLarge(FrameError):  # noqa: N818 (see messaging.errors)
    """The peer sent a message longer than the limits."""


class Owner(Protocol):
    """The session of a bulk socket, which gets these callbacks."""

    def bulk_arrived(self, envelope: Envelope) -> None: ...
    def bulk_marked(self, data: bytes) -> None:
        """Echo a mark."""

    def bulk_faulted(self, fault: RemoteFault) -> None:
        """End the session, because the peer violated the protocol."""

    def bulk_ended(self, reason: str) -> None:
        """End the session, if it is not over already, because this socket is gone."""


class BulkProtocol(asyncio.BufferedProtocol):
    """One bulk socket, from its takeover until its connection is gone (`lost`).

    `messages` have arrived whole. `beats` are signs of life since the last keepalive check; more
    than `BEATS_MAX` are a fault.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        previous: asyncio.BaseProtocol,
        *,
        masks: bool,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """Take over a connection on which nothing has arrived since the websocket's handshake.

        Nothing is read before `attach`: bytes that the peer sends earlier wait in the system.
        `previous` is the protocol that owned the connection, whose loss is reported to it. The side
        that dialled masks what it sends.
        """
        self.lost = asyncio.Event()
        self.messages = 0
        self._transport = transport
        self._previous = previous
        self.bytes_sent = 0
        self.bytes_received = 0
        self._masks = masks
        self._on_lost = on_lost
        self._owner: Owner | None = None
        self._assembler: Assembler | None = None
        self._limit_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._have = 0
        self._target: memoryview | None = None  # buffer that takes the rest of a message
        self._filled = 0
        self._is_chunk = False
        self._key = b""
        self._failed = False
        self._marked = 0  # messages that had arrived when a mark came last
        self.beats = 0
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        transport.set_protocol(self)
        transport.pause_reading()

    def attach(self, owner: Owner, assembler: Assembler, limit_bytes: int) -> None:
        """Begin to read messages of at most `limit_bytes` for a session."""
        self._owner = owner
        self._assembler = assembler
        self._limit_bytes = limit_bytes
        self.resume_reading()

    @property
    def partial(self) -> bool:
        """Whether a message has arrived in part."""
        return self._target is not None or self._have > 0

    # -------------------------------------------------------------------------------- sending

    async def send(self, first: bytes, rest: memoryview | None = None) -> None:
        """Send a binary message made of two parts; wait while the write buffer is full.

        This and the next two raise `ConnectionResetError` if the connection is gone.
        """
        self._write(WSMsgType.BINARY, first, rest)
        if not self._writable.is_set():
            await self._writable.wait()

    def ping(self, data: bytes) -> None:
        """Send a mark as a websocket ping."""
        self._write(WSMsgType.PING, data)

    def beat(self) -> None:
        """Send a sign of life: an empty pong, which nobody answers."""
        self._write(WSMsgType.PONG, b"")

    async def hang_up(self, timeout_s: float) -> None:
        """Close the connection; abort it if that takes longer than `timeout_s`."""
        if not self.lost.is_set() and not self._transport.is_closing():
            self._write(WSMsgType.CLOSE, _SHORT.pack(WSCloseCode.OK))
            self._transport.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self.lost.wait()
        except TimeoutError:
            self._transport.abort()
        except BaseException:
            self._transport.abort()
            raise

    def abort(self) -> None:
        """Close the connection at once, whatever waits to be sent."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Pause reading; TCP applies backpressure to the peer."""
        if not self.lost.is_set() and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.lost.is_set() and not self._transport.is_closing():
            self._transport.resume_reading()

    def _write(self, opcode: int, first: bytes, rest: memoryview | None = None) -> None:
        if self.lost.is_set() or self._transport.is_closing():
            raise ConnectionResetError("the connection is closing")
        size = len(first) + (0 if rest is None else rest.nbytes)
        header = _header(opcode, size, masks=self._masks)
        self.bytes_sent += len(header) + (4 if self._masks else 0) + size
        if self._masks:
            key = secrets.token_bytes(4)
            header += key
            first = _xor(first, key)
            rest = None if rest is None else masked(rest, rotated(key, len(first)))
        if rest is None:
            self._transport.write(header + first)
        else:
            self._transport.writelines((header + first, rest))

    # --------------------------------------------------------- callbacks of the transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._target is not None:
            return self._target[self._filled :]
        return self._scratch[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        """Parse bytes that arrived in the buffer."""
        self.bytes_received += nbytes
        if self._failed:
            return
        try:
            if self._target is None:
                self._have += nbytes
                self._scan()
            else:
                self._filled += nbytes
                if self._filled == self._target.nbytes:
                    self._end_message(self._target)
        except RemoteFault as fault:
            self._fail(fault)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def eof_received(self) -> None:
        """Do nothing, so that the transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._writable.set()
        self._target = None
        self._previous.connection_lost(exc)
        if self._on_lost is not None:
            self._on_lost()
        if self._owner is not None:
            why = str(exc) if exc else "the peer ended it without a reason"
            self._owner.bulk_ended(f"connection lost: {why}")

    # ------------------------------------------------------------------------------- parsing

    def _fail(self, fault: RemoteFault) -> None:
        self._failed = True
        self._target = None
        self._have = 0
        if self._owner is None:
            self._transport.abort()
        else:
            self._owner.bulk_faulted(fault)

    def _scan(self) -> None:
        """Parse messages in the scratch buffer; copy what belongs to a target into it."""
        start = 0
        while start < self._have:
            target = self._target
            if target is None:
                used = self._begin_message(start)
                if not used:
                    break
            else:
                used = min(self._have - start, target.nbytes - self._filled)
                target[self._filled : self._filled + used] = self._scratch[start : start + used]
                self._filled += used
                if self._filled == target.nbytes:
                    self._end_message(target)
            start += used
        rest = self._have - start
        if start and rest:
            self._scratch[:rest] = bytes(self._scratch[start : self._have])
        self._have = rest

    def _begin_message(self, start: int) -> int:
        """Read a header, and the prefix that determines the target; return 0 if bytes are missing.

        Otherwise return how many bytes were used.
        """
        data = self._scratch[start : self._have]
        opcode, size, used = self._read_header(data)
        if not used:
            return 0
        if opcode != WSMsgType.BINARY:
            if len(data) < used + size:
                return 0
            self._take_control(opcode, _xor(bytes(data[used : used + size]), self._key))
            return used + size
        if self._assembler is None:
            raise FrameError("a message before the session began")
        lead = min(size, CHUNK_PREFIX_BYTES)
        if len(data) < used + lead:
            return 0
        prefix = _xor(bytes(data[used : used + lead]), self._key)
        self._is_chunk = is_chunk(prefix) and size > lead
        self._filled = 0
        if not self._is_chunk:
            self._target = memoryview(bytearray(size))
            return used
        self._target = self._assembler.begin_chunk(prefix, size - lead)
        self._key = rotated(self._key, lead)
        return used + lead

    def _read_header(self, data: memoryview) -> tuple[int, int, int]:
        """Return opcode, size of the message, size of the header; all 0 if bytes are missing."""
        if len(data) < _HEADER_BYTES_MIN:
            return 0, 0, 0
        opcode, size, used = data[0] & 0x0F, data[1] & 0x7F, 2
        if data[0] & 0xF0 != _LAST_PIECE:
            raise FrameError("a message in pieces, or with bits that were not agreed")
        if bool(data[1] & 0x80) is self._masks:
            raise FrameError("a message that should be masked and is not, or the reverse")
        if opcode != WSMsgType.BINARY and size > CONTROL_BYTES_MAX:
            raise FrameError("a message that is not binary, or a control frame that is too long")
        if size >= _TWO_BYTES:
            form = _SHORT if size == _TWO_BYTES else _LONG
            if len(data) < used + form.size:
                return 0, 0, 0
            (size,) = form.unpack_from(data, used)
            used += form.size
        if opcode == WSMsgType.BINARY and not 0 < size <= self._limit_bytes:
            raise TooLarge(f"a message of {size} bytes; from 1 to {self._limit_bytes} are allowed")
        self._key = b""
        if not self._masks:
            self._key = bytes(data[used : used + 4])
            used += 4
        return (opcode, size, used) if len(data) >= used else (0, 0, 0)

    def _take_control(self, opcode: int, data: bytes) -> None:
        if opcode == WSMsgType.PING:
            if self._marked == self.messages:
                raise FrameError("a mark that follows no message")
            self._marked = self.messages
            if self._owner is not None:
                self._owner.bulk_marked(data)
        elif opcode == WSMsgType.CLOSE:
            self._transport.close()  # the control socket carries the reason
        elif opcode == WSMsgType.PONG and not data and self.beats < BEATS_MAX:
            self.beats += 1
        else:  # a pong too, as echoes take the control socket; it may be a flipped bit
            raise FrameError("a message that is not binary")

    def _end_message(self, target: memoryview) -> None:
        assert self._assembler is not None
        assert self._owner is not None
        self._target = None
        self.messages += 1
        if self._key:
            mask_in_place(target, self._key)
        if self._is_chunk:
            envelope = self._assembler.end_chunk()
        else:
            envelope = self._assembler.feed(bytes(target))
        if envelope is not None:
            self._owner.bulk_arrived(envelope)


def _header(opcode: int, size: int, *, masks: bool) -> bytes:
    mask = 0x80 if masks else 0
    if size < _TWO_BYTES:
        return bytes((_LAST_PIECE | opcode, mask | size))
    if size < 1 << 16:
        return bytes((_LAST_PIECE | opcode, mask | _TWO_BYTES)) + _SHORT.pack(size)
    return bytes((_LAST_PIECE | opcode, mask | _EIGHT_BYTES)) + _LONG.pack(size)


def _xor(data: bytes, key: bytes) -> bytes:
    """Apply or remove a mask on a few bytes; an empty key leaves them as they are."""
    if not key:
        return data
    size = len(data)
    mask = (key * (size // len(key) + 1))[:size]
    return (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(size)
