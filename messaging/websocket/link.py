"""A session over websockets: one for control, one for bulk; see `messaging.links.link.Link`.

Each socket has one reader, which reads as long as there is room for the messages, and one writer
behind a bounded queue. A reader without room stops, and TCP applies backpressure to the peer.
Frames are those of `codec`; a frame that violates the protocol ends this session and no other.

Marks of the congestion window are websocket pings on the bulk socket, with their number. Their
echoes are pongs on the control socket, where no bulk of the other direction delays them: `number
time`, with the microseconds of the echoing side's own monotonic clock (see `congestion_window`).
Pings of the control socket itself are a keepalive, the last resort against vanished peers; the
actors' own heartbeats decide about liveness.

The control socket closes first: this end sends the control that waits, then the reason as the
websocket's close message, then awaits the peer's answer, and only then closes the bulk socket. So
a peer that sees the bulk socket end before it received a reason knows that the connection broke.
"""

import asyncio
import itertools
import re
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from aiohttp import ClientWebSocketResponse, WSCloseCode, WSMessage, WSMsgType

from messaging.actors.scope import Scope
from messaging.codec.frames import Allocate, Assembler, Codec, head_frame
from messaging.envelope import Envelope
from messaging.errors import EncodeError, FrameError, LinkClosed, LocalFault, RemoteFault
from messaging.links.link import Lane
from messaging.plain_text import plain
from messaging.websocket.bulk import BulkQueue, BulkSocket
from messaging.websocket.bulk_protocol import BulkProtocol, TooLarge
from messaging.websocket.read_scheduler import ReadScheduler
from messaging.websocket.settings import WebsocketSettings
from messaging.websocket.wire import BROKEN, WebSocket, Wire, frame_bytes

CHECKS_PER_BEAT = 4
"""A sign of life goes over the bulk socket with every fourth check, each 20 s."""
REASON_BYTES = 123
"""The longest reason that a websocket's close message can carry."""
ECHOES_MAX = 1024
"""Echoes that may wait to be sent; beyond that the oldest are dropped, as the newest say most."""

_CLOSE_CODE = struct.Struct(">H")
_MARK = re.compile(rb"\d{1,18}")
_ECHO = re.compile(rb"\d{1,18} \d{1,18}")


def _no_payload(envelope: Envelope, _: tuple[int, ...]) -> Sequence[memoryview]:
    """Refuse a payload on the control socket, where nothing bounds the payloads that wait."""
    raise FrameError(f"a {type(envelope.body).__name__!r} with a payload on the control socket")


class WebsocketLink:
    """One end of a session with a peer in another process."""

    def __init__(
        self,
        names: tuple[str, str],
        control: Wire,
        bulk: BulkProtocol,
        *,
        codec: Codec,
        settings: WebsocketSettings,
        allocate: Allocate,
        turns: ReadScheduler,
        admitted: Callable[[], None] | None,
        report: Callable[[str], None],
    ) -> None:
        """Make a link from open sockets; it sends and receives while `run` runs.

        The names are those of this end and of the other. `allocate` returns the buffers for
        arriving payloads. `admitted` is called when the peer is admitted, and no bulk is read
        before; None: it counts as admitted. `report` is called with a sentence about each protocol
        violation.
        """
        self.local, self.remote = names
        self.host = control.host
        self.holder, self.token = control.holder, control.token
        self.close_reason: str | None = None
        self.ended = asyncio.Event()
        self._wire = control
        self._control = control.socket
        self._masks = isinstance(control.socket, ClientWebSocketResponse)
        self._control_sent = 0
        self._control_received = 0
        self._bulk = BulkSocket(bulk, settings)
        self._codec = codec
        self._settings = settings
        self._allocate = allocate
        self._turns = turns
        self._on_admitted = admitted
        self._report = report
        self._control_out: deque[bytes] = deque()
        self._bulk_out = BulkQueue(settings.bulk_capacity, settings.outbox_bytes)
        self._control_in: deque[tuple[Envelope, int]] = deque()
        self._control_in_bytes = 0
        self._bulk_in: deque[Envelope] = deque()
        self.unread_bytes = 0  # of bulk
        self._held = admitted is not None  # whether reading of the bulk socket is paused
        self._echoes: deque[bytes] = deque(maxlen=ECHOES_MAX)
        self._waiter: asyncio.Future[None] | None = None
        self._to_send = asyncio.Event()
        self._flushed = asyncio.Event()
        self._space = asyncio.Event()
        self._over = asyncio.Event()
        self._peer_gone = asyncio.Event()
        self._goodbye: tuple[int, str] | None = None  # the close message that this end sends
        self._quiet = 0

    def __repr__(self) -> str:
        state = "open" if self.close_reason is None else f"closed: {self.close_reason}"
        return f"WebsocketLink({self.local} -> {self.remote}, {state})"

    @property
    def closed(self) -> bool:
        return self.close_reason is not None

    @property
    def bytes_sent(self) -> int:
        return self._control_sent + self._bulk.socket.bytes_sent

    @property
    def bytes_received(self) -> int:
        return self._control_received + self._bulk.socket.bytes_received

    def send(self, envelope: Envelope, lane: Lane = Lane.CONTROL, topic: str | None = None) -> bool:
        if self.close_reason is not None:
            return False
        header = self._codec.encode(envelope)
        if envelope.payload and lane is not Lane.BULK:
            raise EncodeError("a payload takes the bulk lane")
        if lane is Lane.BULK:
            return self._bulk_out.offer(header, envelope, topic)
        if len(self._control_out) >= self._settings.control_capacity:
            self.close("the peer does not read: the control queue is full")
            return False
        self._control_out.append(header)
        self._to_send.set()
        return True

    def holds(self, topic: str) -> bool:
        return self._bulk_out.holds(topic) or self._bulk.topic == topic

    def withdraw(self, topic: str) -> bool:
        return self._bulk_out.withdraw(topic)

    async def receive(self) -> Envelope:
        while True:  # until an envelope comes or the session is over
            envelope = self._next_unread()
            if envelope is not None:
                return envelope
            if self.close_reason is not None:
                raise LinkClosed(self.close_reason)
            if self._waiter is not None:
                raise LocalFault("a link has one reader, and it waits already")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def admit(self) -> None:
        if self._on_admitted is not None:
            admitted, self._on_admitted = self._on_admitted, None
            self._release()
            if not self.closed:
                admitted()

    def close(self, reason: str) -> None:
        """End the session as `Link.close` does, but still send the queued control."""
        self._close(reason, WSCloseCode.OK)

    async def run(self) -> None:
        """Run the session until it is over and its sockets are closed."""
        try:
            async with Scope(f"link-{self.remote}", self._task_failed) as scope:
                scope.spawn(self._guarded(self._read_control()), "read-control")
                scope.spawn(self._guarded(self._write_control()), "write-control")
                assembler = Assembler(self._codec, self._allocate)
                self._bulk.socket.attach(self, assembler, self._codec.limits.frame_bytes)
                if self._held:
                    self._bulk.socket.pause_reading()
                scope.spawn(self._guarded(self._write_bulk()), "write-bulk")
                scope.spawn(self._watch(), "watch")
                await self._over.wait()
                if self._goodbye is not None:
                    await self._say_goodbye(*self._goodbye)
        finally:
            self._lose("the network is closed")
            await self._wire.hang_up(self._settings.close_s)
            await self._bulk.socket.hang_up(self._settings.close_s)
            self.ended.set()

    # ------------------------------------------------------- callbacks of the bulk socket

    def bulk_arrived(self, envelope: Envelope) -> None:
        """Queue an envelope; pause reading if the inbox is full."""
        if self.closed:
            return
        self._bulk_in.append(envelope)
        self.unread_bytes += envelope.size_bytes
        self._wake()
        if not self._held and self._bulk_full():
            self._held = True
            self._bulk.socket.pause_reading()

    def bulk_marked(self, data: bytes) -> None:
        if _MARK.fullmatch(data) is None:
            raise RemoteFault("a mark of another form")
        self._echoes.append(b"%s %d" % (data, int(asyncio.get_running_loop().time() * 1e6)))
        self._to_send.set()

    def bulk_faulted(self, fault: RemoteFault) -> None:
        self._fault(fault)

    def bulk_ended(self, reason: str) -> None:
        self._lose(reason)

    def _next_unread(self) -> Envelope | None:
        if self._control_in:
            self._space.set()
            control, size_bytes = self._control_in.popleft()
            self._control_in_bytes -= size_bytes
            return control
        if not self._bulk_in:
            return None
        envelope = self._bulk_in.popleft()
        self.unread_bytes -= envelope.size_bytes
        self._release()
        return envelope

    def _release(self) -> None:
        """Resume reading bulk, if the peer is admitted and there is room again."""
        if self._held and self._on_admitted is None and not self._bulk_full():
            self._held = False
            self._bulk.socket.resume_reading()

    def _close(self, reason: str, code: int) -> None:
        if self.close_reason is None:
            self._goodbye = (code, reason)
            self._control_in.clear()
            self._control_in_bytes = 0
            self._bulk_in.clear()
            self.unread_bytes = 0
            self._release()
            self._end(reason)

    def _lose(self, reason: str) -> None:
        """End as the peer is gone; envelopes that arrived can still be received."""
        self._peer_gone.set()
        if self.close_reason is None:
            self._control_out.clear()
            self._end(reason)

    def _end(self, reason: str) -> None:
        self.close_reason = reason
        self._bulk_out.clear()
        self._over.set()
        self._to_send.set()
        self._space.set()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---------------------------------------------------------------------------------- tasks

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """End the session on a broken connection or a bad frame; let other errors through."""
        try:
            await work
        except RemoteFault as fault:
            self._fault(fault)
        except BROKEN as error:
            self._lose(f"connection lost: {str(error) or type(error).__name__}")

    def _fault(self, fault: RemoteFault) -> None:
        self._report(plain(f"{self.remote} sent what no honest peer sends: {fault}"))
        large = isinstance(fault, TooLarge)
        code = WSCloseCode.MESSAGE_TOO_BIG if large else WSCloseCode.PROTOCOL_ERROR
        self._close(str(fault), code)

    def _task_failed(self, name: str, error: BaseException) -> None:
        """Report a bug of this program to the loop, so that it does not go unnoticed."""
        self._close("internal error of the peer", WSCloseCode.INTERNAL_ERROR)
        context = {"message": f"{name} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    async def _read_control(self) -> None:
        assembler = Assembler(self._codec, _no_payload)
        while True:  # until the socket ends
            message = await self._control.receive()
            self._quiet = 0
            size_bytes = len(message.data) if isinstance(message.data, bytes) else 0
            if size_bytes:
                self._control_received += frame_bytes(size_bytes, masked=not self._masks)
            await self._turns.wait(size_bytes, member=self._on_admitted is None)
            if message.type is WSMsgType.BINARY:
                envelope = assembler.feed(message.data)
                if envelope is not None and not self.closed:
                    self._control_in.append((envelope, size_bytes))
                    self._control_in_bytes += size_bytes
                    self._wake()
                    while self._control_full() and not self.closed:
                        self._space.clear()
                        await self._space.wait()
            elif message.type is WSMsgType.PING:
                await self._control.pong(message.data)
            elif message.type is WSMsgType.PONG:
                self._note_echo(message.data)
            else:
                self._socket_ended(message, self._control)
                return

    async def _write_control(self) -> None:
        numbers = itertools.count()
        while True:  # until the link is closed and everything is sent
            await self._send_echoes()
            while self._control_out:
                frame = head_frame(self._control_out.popleft(), next(numbers))
                self._control_sent += frame_bytes(len(frame), masked=self._masks)
                await self._control.send_bytes(frame)
            if self.closed:
                self._flushed.set()
                return
            if not self._echoes:
                self._to_send.clear()
                await self._to_send.wait()

    async def _send_echoes(self) -> None:
        while self._echoes:
            echo = self._echoes.popleft()
            self._control_sent += frame_bytes(len(echo), masked=self._masks)
            await self._control.pong(echo)

    async def _write_bulk(self) -> None:
        while not self.closed:
            await self._bulk.send(await self._bulk_out.take())

    def _control_full(self) -> bool:
        if not self._control_in:
            return False
        full = len(self._control_in) >= self._settings.control_capacity
        return full or self._control_in_bytes > self._settings.control_inbox_bytes

    def _bulk_full(self) -> bool:
        count = len(self._bulk_in)
        too_large = count > 1 and self.unread_bytes > self._settings.inbox_bytes
        return count >= self._settings.bulk_capacity or too_large

    def _note_echo(self, data: bytes) -> None:
        """Process a pong: the echo of a mark, or of the keepalive's empty ping."""
        if not data:
            return
        if _ECHO.fullmatch(data) is None:
            raise RemoteFault("an echo of another form")
        number, received_us = map(int, data.split())
        self._bulk.echoed(number, received_us / 1e6)

    def _socket_ended(self, message: WSMessage, websocket: WebSocket) -> None:
        if message.type is WSMsgType.CLOSE:
            code, reason = message.data, message.extra or "no reason given"
            fault = "" if code == WSCloseCode.OK else f" (code {code})"
            self._lose(f"closed by {self.remote}{fault}: {reason}")
        elif message.type is WSMsgType.TEXT:
            raise RemoteFault("a text message")
        elif message.type is WSMsgType.ERROR and not isinstance(message.data, OSError):
            how = plain(str(message.data), REASON_BYTES)
            self._report(f"{self.remote} broke the websocket protocol: {how}")
            self._lose(f"the peer broke the websocket protocol: {how}")
        else:
            error = message.data if message.type is WSMsgType.ERROR else websocket.exception()
            self._lose(f"connection lost: {error or 'the peer ended it without a reason'}")

    async def _watch(self) -> None:
        """Give up a peer that was silent for too long, whatever state the connection reports.

        The keepalive counts its own checks instead of measuring time, so that a pause of this
        process itself counts as one check.
        """
        limit = self._settings.silent_pings
        for checks in itertools.count(1):
            await asyncio.sleep(self._settings.ping_s)
            if self.closed:
                return
            self._quiet = 0 if self._control_full() else self._quiet + 1
            self._bulk.check_progress(reading=not self._held)
            silence_s = limit * self._settings.ping_s
            if self._quiet > limit:
                self._lose(f"nothing heard for {silence_s:g} s")
                self._cut()
            elif max(self._bulk.quiet_out, self._bulk.quiet_in) > limit:
                reason = f"a bulk message was not carried over within {silence_s:g} s"
                self._close(reason, WSCloseCode.POLICY_VIOLATION)
            elif self._quiet:
                await self._guarded(self._control.ping(b""))
            if checks % CHECKS_PER_BEAT == 0:
                await self._guarded(self._beat())

    async def _beat(self) -> None:
        """Let no balancer and no NAT on the path forget a bulk socket that carries nothing."""
        self._bulk.socket.beat()

    async def _say_goodbye(self, code: int, reason: str) -> None:
        """Send queued control and the reason; wait for the peer's answer up to `close_s`."""
        data = reason.encode()[:REASON_BYTES].decode(errors="ignore").encode()
        try:
            async with asyncio.timeout(self._settings.close_s):
                await self._flushed.wait()
                await self._control.send_frame(_CLOSE_CODE.pack(code) + data, WSMsgType.CLOSE)
                await self._peer_gone.wait()
        except (TimeoutError, *BROKEN):
            self._cut()  # the peer will see a lost connection

    def _cut(self) -> None:
        """Abort the connections, because the other end takes no part in closing them."""
        self._wire.abort()
        self._bulk.socket.abort()
