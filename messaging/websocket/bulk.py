"""The sending side of a session's bulk socket: a queue, and a congestion window."""

import asyncio
import itertools
from collections import deque
from dataclasses import dataclass

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
    """The queue of envelopes that wait for the bulk socket; it refuses envelopes when it is full.

    The limits apply to envelopes without a topic. Of each topic only the newest waits, so the
    number of topics bounds the others, and no value is skipped however many fragments a model has.
    """

    def __init__(self, capacity: int, capacity_bytes: int) -> None:
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._topicless_bytes = 0
        self._waiting: deque[Waiting] = deque()
        self._topics: dict[str, Waiting] = {}
        self._wake = asyncio.Event()

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
        self._wake.set()
        return True

    def _full(self, more_bytes: int) -> bool:
        """Whether one more without a topic exceeds a limit; a single one is never too large."""
        count = len(self._waiting) - len(self._topics)
        too_large = self._topicless_bytes + more_bytes > self._capacity_bytes
        return count >= self._capacity or (count > 0 and too_large)

    def holds(self, topic: str) -> bool:
        return topic in self._topics

    def withdraw(self, topic: str) -> bool:
        """Discard the waiting envelope of a topic; return whether there was one."""
        waiting = self._topics.pop(topic, None)
        if waiting is not None:
            self._waiting.remove(waiting)
        return waiting is not None

    async def take(self) -> Waiting:
        """Wait for the next envelope."""
        while not self._waiting:
            self._wake.clear()
            await self._wake.wait()
        waiting = self._waiting.popleft()
        if waiting.topic is not None:
            del self._topics[waiting.topic]
        else:
            self._topicless_bytes -= waiting.envelope.size_bytes
        return waiting

    def clear(self) -> None:
        self._waiting.clear()
        self._topics.clear()
        self._topicless_bytes = 0


class BulkSocket:
    """The bulk socket of a session, which sends the envelope of this `topic` now.

    `quiet_out` are consecutive keepalive checks without an echo while a mark awaited one;
    `quiet_in` those during which the same message was arriving.
    """

    def __init__(self, socket: BulkProtocol, settings: WebsocketSettings) -> None:
        self.socket = socket
        self.topic: str | None = None
        self.quiet_out = 0
        self.quiet_in = 0
        self._window = CongestionWindow(settings.queue_delay_s, settings.chunk_bytes)
        self._numbers = itertools.count()  # of the frames that are sent
        self._echo = asyncio.Event()
        self._messages = 0

    async def send(self, waiting: Waiting) -> None:
        """Send one whole envelope, as fast as the congestion window allows."""
        self.topic = waiting.topic
        unyielded = 0
        await self._send_frame(head_frame(waiting.header, next(self._numbers)))
        for prefix, data in chunk_parts(waiting.envelope, self._frame_bytes, self._numbers):
            await self._send_frame(prefix, data)
            unyielded += data.nbytes
            if unyielded >= YIELD_BYTES:
                unyielded = 0
                await asyncio.sleep(0)
        self.topic = None

    def echoed(self, number: int, received_s: float) -> None:
        """Note an echo, with the peer's own time, unless no such mark awaits one."""
        now_s = asyncio.get_running_loop().time()
        if self._window.echoed(number, now_s, received_s):
            self.quiet_out = 0
            self._echo.set()

    def check_progress(self, *, reading: bool) -> None:
        """Count for how many keepalive checks this socket has made no progress.

        If this end is not `reading`, `quiet_in` stays 0.
        """
        self.quiet_out = self.quiet_out + 1 if self._window.awaits_echo else 0
        same = self.socket.partial and self.socket.messages == self._messages
        self.quiet_in = self.quiet_in + 1 if same and reading else 0
        self._messages = self.socket.messages
        self.socket.beats = 0

    def _frame_bytes(self) -> int:
        return self._window.chunk_bytes + CHUNK_PREFIX_BYTES

    async def _send_frame(self, first: bytes, rest: memoryview | None = None) -> None:
        window = self._window
        while not window.may_send():
            self._mark_if_due()
            self._echo.clear()
            await self._echo.wait()
        window.sent(len(first) + (0 if rest is None else rest.nbytes))
        await self.socket.send(first, rest)
        self._mark_if_due()

    def _mark_if_due(self) -> None:
        if self._window.mark_due():
            self.socket.ping(b"%d" % self._window.mark(asyncio.get_running_loop().time()))
