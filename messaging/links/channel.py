"""One direction of a session inside this process: from one end's `send` to the other's inbox.

Without conditions an envelope is in the inbox when `offer` returns. With conditions each envelope
spends a time in flight that the conditions decide. Timers determine *when* the next envelope of a
lane arrives and a queue determines *which* it is, so equal times cannot reorder a lane.

The effect of a drop follows from the transport of real links: TCP neither loses nor repeats bytes
within a session. So a dropped bulk envelope counts as skipped, and a dropped control envelope
breaks the session. One that was changed on its way ends the session when it arrives, since every
frame has a checksum.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Protocol

from messaging.envelope import Envelope
from messaging.links.link import Lane

CONTROL_CAPACITY = 1024
"""Control envelopes that may be in flight or unread, per direction."""


class ChannelEnd(Protocol):
    """What a direction requires of the link at either of its ends; see `MemoryLink`."""

    @property
    def closed(self) -> bool:
        """Whether the session is over for this end."""

    def close(self, reason: str) -> None: ...
    def wake(self) -> None: ...
    def lose(self, reason: str) -> None: ...
    def die(self, *, silent: bool) -> None: ...


class Conditions(Protocol):
    """The network between two hosts: decides when and whether an envelope arrives."""

    async def connect(self, source: str, target: str) -> None:
        """Wait for the time that opening a session takes; raise `DialFailed` if it cannot."""

    def opened(self, there: "Channel", back: "Channel") -> None:
        """Register the two directions of a new session."""

    def ended(self, channel: "Channel") -> None:
        """Remove a direction, which carries nothing any more."""

    def arrivals(
        self, channel: "Channel", queue: "LaneQueue", envelope: Envelope
    ) -> tuple[float, ...]:
        """Return the loop times at which the envelope arrives: twice, once, or never (dropped)."""

    def damages(self, channel: "Channel") -> bool:
        """Whether an envelope that arrives was changed on its way."""

    def notice_s(self, channel: "Channel") -> float:
        """Return how many seconds pass until the far end learns that a direction has ended."""

    def keeps_tail(self, channel: "Channel", queue: "LaneQueue") -> bool:
        """Whether envelopes in flight still arrive although the sender is gone."""


@dataclass(slots=True, eq=False)
class LaneQueue:
    """One lane of one direction: the envelopes in flight and those that wait to be received.

    Attributes:
        capacity: The most envelopes in flight and in the inbox together.
        flight: Envelopes in transit, in order; None is one that was changed on its way.
        last_arrival_s: When the envelope sent last arrives; none sent later arrives earlier.
        free_at_s: When the bandwidth is free again; only the conditions read and set it.
        overdue: How many arrivals came due while the direction was held.
    """

    lane: Lane
    capacity: int
    flight: deque[Envelope | None] = field(default_factory=deque)
    inbox: deque[Envelope] = field(default_factory=deque)
    last_arrival_s: float = 0.0
    free_at_s: float = 0.0
    overdue: int = 0


class Channel:
    """One direction of a session: from the sender's `send` to the inbox of the `receiver`.

    While it is `held`, the direction is cut: envelopes that come due wait for `release`.
    """

    receiver: ChannelEnd

    def __init__(
        self, source: str, target: str, bulk_capacity: int, conditions: Conditions | None
    ) -> None:
        """Make a direction with nothing in flight; without conditions, envelopes arrive at once."""
        self.source = source
        self.target = target
        self.control = LaneQueue(Lane.CONTROL, CONTROL_CAPACITY)
        self.bulk = LaneQueue(Lane.BULK, bulk_capacity)
        self.held = False
        self._conditions = conditions
        self._loop = asyncio.get_running_loop()
        self._context = Context()
        self._broken = False
        self._end_reason: str | None = None
        self._end_overdue = False

    def offer(self, sender: ChannelEnd, envelope: Envelope, lane: Lane) -> bool:
        """Take an envelope; return False if it was not taken."""
        bulk = lane is Lane.BULK
        queue = self.bulk if bulk else self.control
        if len(queue.flight) + len(queue.inbox) >= queue.capacity:
            if not bulk:
                sender.close("the peer does not read: the control queue is full")
            return False
        if self._conditions is None:
            queue.inbox.append(envelope)
            self.receiver.wake()
            return True
        if self._broken:
            return True  # the envelope is lost; both ends learn of the break soon
        arrivals = self._conditions.arrivals(self, queue, envelope)
        if not arrivals:
            if not bulk:
                self._break(sender)
            return not bulk
        for arrival_s in arrivals:
            queue.last_arrival_s = max(arrival_s, queue.last_arrival_s)
            queue.flight.append(None if self._conditions.damages(self) else envelope)
            self._at(queue.last_arrival_s, self._arrive, queue)
        return True

    def end(self, reason: str, *, abrupt: bool = False) -> None:
        """Notify the far end, after the envelopes in flight, that the sender is gone.

        If it was `abrupt`, as the sender died, control in flight may be lost as well.
        """
        if self._end_reason is not None:
            return
        self._end_reason = reason
        if self._conditions is None:
            self._finish()
            return
        for queue in (self.control, self.bulk):
            may_lose = abrupt or queue.lane is Lane.BULK
            if may_lose and queue.flight and not self._conditions.keeps_tail(self, queue):
                queue.flight.clear()
        when = self._loop.time() + self._conditions.notice_s(self)
        for queue in (self.control, self.bulk):
            if queue.flight:
                when = max(when, queue.last_arrival_s)
        self._at(when, self._finish)

    def vanish(self) -> None:
        """Drop the envelopes in flight; the far end learns nothing, now or later."""
        self._end_reason = "vanished"
        self._broken = True
        self.control.flight.clear()
        self.bulk.flight.clear()
        if self._conditions is not None:
            self._conditions.ended(self)

    def abandon(self) -> None:
        """Drop the envelopes in flight, because the far end is gone."""
        if self._end_reason is None:
            self.vanish()

    def hold(self) -> None:
        """Cut this direction: nothing arrives until `release`."""
        self.held = True

    def release(self, delay_s: float) -> None:
        """Heal this direction; overdue envelopes arrive after `delay_s`, in order."""
        self.held = False
        for queue in (self.control, self.bulk):
            for _ in range(queue.overdue):
                self._at(self._loop.time() + delay_s, self._arrive, queue)
            queue.overdue = 0
        if self._end_overdue:
            self._end_overdue = False
            self._at(self._loop.time() + delay_s, self._finish)

    def reset(self) -> None:
        """Lose what is in flight, and break the session for the far end, as a TCP RST does."""
        self.control.flight.clear()
        self.bulk.flight.clear()
        self._broken = True
        self.receiver.lose(f"connection to {self.source} reset")

    def _at(self, when: float, call: Callable[..., object], *args: object) -> None:
        """Schedule what the network does, in the context of no process."""
        self._loop.call_at(when, call, *args, context=self._context)

    def _arrive(self, queue: LaneQueue) -> None:
        if self.held:
            queue.overdue += 1
        elif queue.flight:
            envelope = queue.flight.popleft()
            if self.receiver.closed:
                return
            if envelope is None:
                self.receiver.close("a frame's checksum is not that of its bytes")
                return
            queue.inbox.append(envelope)
            self.receiver.wake()

    def _finish(self) -> None:
        if self.held:
            self._end_overdue = True
            return
        if not self.receiver.closed:
            for queue in (self.control, self.bulk):
                queue.inbox.extend(envelope for envelope in queue.flight if envelope is not None)
                queue.flight.clear()
            self.receiver.lose(f"closed by {self.source}: {self._end_reason}")
        if self._conditions is not None:
            self._conditions.ended(self)

    def _break(self, sender: ChannelEnd) -> None:
        """Break the session from here on; each end learns of it after `notice_s`."""
        assert self._conditions is not None
        self._broken = True
        self.end("connection lost")
        when = self._loop.time() + self._conditions.notice_s(self)
        self._at(when, sender.close, "connection lost")
