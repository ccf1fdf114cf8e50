"""The bulk sockets of a session: a queue that they share, and a pace for each.

Envelope number i of a session travels whole on socket i mod n, and the receiver takes envelopes
from the sockets in the same turn; so order holds within the lane without numbers on the wire.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from messaging.codec.frames import CHUNK_PREFIX_BYTES, chunk_parts, head_frame
from messaging.envelope import Envelope
from messaging.websocket.bulk_protocol import BulkProtocol
from messaging.websocket.congestion_window import CongestionWindow
from messaging.websocket.settings import WebsocketSettings

YIELD_BYTES = 1 << 20
"""After so many bytes the sender yields to the event loop, even if nothing made it wait."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A bulk envelope that waits to be sent, and its header document."""

    header: bytes
    envelope: Envelope
    topic: str | None


class BulkQueue:
    """The queue of envelopes that wait for a bulk socket; it refuses envelopes when it is full.

    The limits apply to envelopes without a topic. Of each topic only the newest waits, so the
    number of topics bounds the others, and no value is skipped however many fragments a model has.
    """

    def __init__(self, capacity: int, capacity_bytes: int, *, sockets: int) -> None:
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._topicless_bytes = 0
        self._waiting: deque[Waiting] = deque()
        self._topics: dict[str, Waiting] = {}
        self._turn = 0
        self._wakes = [asyncio.Event() for _ in range(sockets)]

    def offer(self, header: bytes, envelope: Envelope, topic: str | None) -> bool:
        """Queue an envelope, or replace one of the same topic; return False if it was not taken."""
        older = None if topic is None else self._topics.get(topic)
        if older is not None:
            older.header, older.envelope = header, envelope
            return True
        if topic is None:
            if self._full(envelope.size_bytes):
                return False
            self._topicless_bytes += envelope.size_bytes
        waiting = Waiting(header, envelope, topic)
        self._waiting.append(waiting)
        if topic is not None:
            self._topics[topic] = waiting
        self._wakes[self._turn].set()
        return True

    def _full(self, more_bytes: int) -> bool:
        """Whether one more without a topic exceeds a limit; a single one is never too large."""
        count = len(self._waiting) - len(self._topics)
        too_large = self._topicless_bytes + more_bytes > self._capacity_bytes
        return count >= self._capacity or (count > 0 and too_large)

    def holds(self, topic: str) -> bool:
        return topic in self._topics

    def withdraw(self, topic: str) -> bool:
        """Discard the waiting envelope of a topic; returns whether there was one."""
        waiting = self._topics.pop(topic, None)
        if waiting is not None:
            self._waiting.remove(waiting)
        return waiting is not None

    async def take(self, index: int) -> Waiting:
        """Wait for the next envelope that travels on socket `index`."""
        wake = self._wakes[index]
        while self._turn != index or not self._waiting:
            wake.clear()
            await wake.wait()
        waiting = self._waiting.popleft()
        if waiting.topic is not None:
            del self._topics[waiting.topic]
        else:
            self._topicless_bytes -= waiting.envelope.size_bytes
        self._turn = (self._turn + 1) % len(self._wakes)
        self._wakes[self._turn].set()
        return waiting

    def clear(self) -> None:
        self._waiting.clear()
        self._topics.clear()
        self._topicless_bytes = 0


@dataclass(slots=True)
class BulkSocket:
    """One bulk socket of a session.

    Attributes:
        socket: The connection that carries the frames.
        index: Position among the bulk sockets of the session.
        settings: Settings of the network, which hold chunk size and allowed delay.
        inbox: Envelopes that arrived and were not received.
        numbers: Yields the sequence numbers of the frames that are sent.
        topic: Topic of the envelope that is being sent.
        pace: Bounds the bytes under way; None: only the system bounds them.
        echo: Set when an echo came.
        quiet_out: Consecutive keepalive checks without an echo while a mark awaited one.
        quiet_in: Consecutive keepalive checks that found the same message still arriving.
    """

    socket: BulkProtocol
    index: int
    settings: WebsocketSettings
    inbox: deque[Envelope] = field(default_factory=deque)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    topic: str | None = None
    pace: CongestionWindow | None = None
    echo: asyncio.Event = field(default_factory=asyncio.Event)
    quiet_out: int = 0
    quiet_in: int = 0
    _messages: int = 0

    def __post_init__(self) -> None:
        """Make the pace, unless the settings turn it off."""
        if self.settings.queue_delay_s is not None:
            self.pace = CongestionWindow(self.settings.queue_delay_s, self.settings.chunk_bytes)

    async def send(self, waiting: Waiting) -> None:
        """Send one whole envelope, as fast as the pace allows."""
        self.topic = waiting.topic
        unyielded = 0
        await self._send_frame(head_frame(waiting.header, next(self.numbers)))
        for prefix, data in chunk_parts(waiting.envelope, self._frame_bytes, self.numbers):
            await self._send_frame(prefix, data)
            unyielded += data.nbytes
            if unyielded >= YIELD_BYTES:
                unyielded = 0
                await asyncio.sleep(0)
        self.topic = None

    def echoed(self, number: int, received_s: float) -> bool:
        """Note an echo, with the peer's own time; return False if no such mark awaits one."""
        now_s = asyncio.get_running_loop().time()
        if self.pace is None or not self.pace.echoed(number, now_s, received_s):
            return False
        self.quiet_out = 0
        self.echo.set()
        return True

    def look(self, *, reading: bool) -> None:
        """Count for how many keepalive checks this socket has made no progress.

        Args:
            reading: Whether this end reads the socket; otherwise `quiet_in` stays 0.
        """
        waits = self.pace is not None and self.pace.awaits_echo
        self.quiet_out = self.quiet_out + 1 if waits else 0
        same = self.socket.partial and self.socket.messages == self._messages
        self.quiet_in = self.quiet_in + 1 if same and reading else 0
        self._messages = self.socket.messages
        self.socket.beats = 0

    def _frame_bytes(self) -> int:
        chunk_bytes = self.settings.chunk_bytes if self.pace is None else self.pace.chunk_bytes
        return chunk_bytes + CHUNK_PREFIX_BYTES

    async def _send_frame(self, first: bytes, rest: memoryview | None = None) -> None:
        pace = self.pace
        if pace is None:
            await self.socket.send(first, rest)
            return
        while not pace.may_send():
            self._mark_if_due(pace)
            self.echo.clear()
            await self.echo.wait()
        pace.sent(len(first) + (0 if rest is None else rest.nbytes))
        await self.socket.send(first, rest)
        self._mark_if_due(pace)

    def _mark_if_due(self, pace: CongestionWindow) -> None:
        if pace.mark_due():
            number = pace.mark(asyncio.get_running_loop().time())
            self.socket.ping(b"%d %d" % (self.index, number))
