"""One direction of a session inside this process: from one end's `send` to the other's inbox.

Without conditions an envelope is in the inbox when `offer` returns. With conditions each envelope
spends a time in flight that the conditions decide; timers say *when* the next envelope of a lane
arrives, a queue says *which*, so order within a lane cannot be upset by equal times.

What a drop means follows from what carries real links: TCP neither loses nor repeats bytes within
a session. So bulk that is dropped is bulk that was skipped, and control that is dropped takes the
rest of the session with it.
"""

import asyncio
from collections import deque
from typing import Protocol

from messaging.envelope import Envelope
from messaging.links.link import Lane


class ChannelEnd(Protocol):
    """What a direction needs to know of the link at either of its ends."""

    @property
    def closed(self) -> bool:
        """Whether the session is over for this end."""
        ...

    def close(self, reason: str) -> None:
        """End the session."""
        ...

    def wake(self) -> None:
        """Look into the inbox."""
        ...

    def lose(self, reason: str) -> None:
        """Learn that the peer ended the session."""
        ...

    def die(self, *, silent: bool) -> None:
        """End as a process that is killed, or silently as a machine without power."""
        ...


class Conditions(Protocol):
    """What lies between two hosts: decides when and whether an envelope arrives."""

    async def connect(self, source: str, target: str) -> None:
        """Wait as long as opening a session takes.

        Raises:
            DialFailed: No answer came in time.
        """
        ...

    def opened(self, there: "Channel", back: "Channel") -> None:
        """Take note of the two directions of a new session."""
        ...

    def ended(self, channel: "Channel") -> None:
        """Forget a direction: nothing travels on it any more."""
        ...

    def arrivals(
        self, channel: "Channel", queue: "LaneQueue", envelope: Envelope
    ) -> tuple[float, ...]:
        """Return the loop times at which the envelope arrives.

        Two times deliver it twice. None at all drops it: a bulk envelope counts as skipped, a
        control envelope breaks the session.
        """
        ...

    def notice_s(self, channel: "Channel") -> float:
        """Return after how many seconds the far end of a direction learns that it has ended."""
        ...

    def keeps_tail(self, channel: "Channel", queue: "LaneQueue") -> bool:
        """Decide whether what is in flight still arrives although the sender is gone."""
        ...


class LaneQueue:
    """One lane of one direction: what is in flight and what waits to be received.

    Attributes:
        lane: Which lane.
        capacity: Bound on both together.
        flight: Envelopes in transit, in order.
        inbox: Envelopes that have arrived, in order.
        last_arrival_s: When the envelope sent last arrives; none sent later arrives earlier.
        free_at_s: When the conditions' bandwidth has sent what it was given; theirs to use.
        overdue: Arrivals that came due while the direction was held.
    """

    __slots__ = (
        "capacity",
        "flight",
        "free_at_s",
        "inbox",
        "lane",
        "last_arrival_s",
        "overdue",
    )

    def __init__(self, lane: Lane, capacity: int) -> None:
        self.lane = lane
        self.capacity = capacity
        self.flight: deque[Envelope] = deque()
        self.inbox: deque[Envelope] = deque()
        self.last_arrival_s = 0.0
        self.free_at_s = 0.0
        self.overdue = 0


class Channel:
    """One direction of a session: from the sender's `send` to the receiver's inbox.

    Attributes:
        source: Name of the sending end.
        target: Name of the receiving end.
        receiver: The link at whose end this direction arrives.
        control: Queue of the control lane.
        bulk: Queue of the bulk lane.
        held: Whether the direction is cut: what comes due waits for `release`.
    """

    def __init__(
        self,
        source: str,
        target: str,
        *,
        capacities: tuple[int, int],
        conditions: Conditions | None,
    ) -> None:
        """Make a direction with nothing in flight; its `receiver` is set by the link.

        Args:
            source: Name of the sending end.
            target: Name of the receiving end.
            capacities: Of the control and of the bulk lane.
            conditions: What lies in between; None: nothing does.
        """
        control, bulk = capacities
        self.source = source
        self.target = target
        self.receiver: ChannelEnd
        self.control = LaneQueue(Lane.CONTROL, control)
        self.bulk = LaneQueue(Lane.BULK, bulk)
        self.held = False
        self._conditions = conditions
        self._loop = asyncio.get_running_loop()
        self._broken = False
        self._end_reason: str | None = None
        self._end_overdue = False

    def offer(self, sender: ChannelEnd, envelope: Envelope, lane: Lane) -> bool:
        """Take an envelope, or say that it was not taken."""
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
            return True  # swallowed; both ends learn of it soon
        arrivals = self._conditions.arrivals(self, queue, envelope)
        if not arrivals:
            if not bulk:
                self._break(sender)
            return not bulk
        for arrival_s in arrivals:
            queue.last_arrival_s = max(arrival_s, queue.last_arrival_s)
            queue.flight.append(envelope)
            self._loop.call_at(queue.last_arrival_s, self._arrive, queue)
        return True

    def end(self, reason: str, *, abrupt: bool = False) -> None:
        """Tell the far end, after what is in flight, that the sender is gone.

        Args:
            reason: What the far end is told.
            abrupt: The sender did not close but died: control in flight may be lost as well.
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
        self._loop.call_at(when, self._finish)

    def vanish(self) -> None:
        """Drop what is in flight; the far end is told nothing, now or later."""
        self._end_reason = "vanished"
        self._broken = True
        self.control.flight.clear()
        self.bulk.flight.clear()
        if self._conditions is not None:
            self._conditions.ended(self)

    def abandon(self) -> None:
        """Drop what is in flight: the far end is gone."""
        if self._end_reason is None:
            self.vanish()

    def hold(self) -> None:
        """Cut this direction: nothing arrives until `release`."""
        self.held = True

    def release(self, delay_s: float) -> None:
        """Heal this direction: what came due meanwhile arrives after `delay_s`, in order."""
        self.held = False
        for queue in (self.control, self.bulk):
            for _ in range(queue.overdue):
                self._loop.call_later(delay_s, self._arrive, queue)
            queue.overdue = 0
        if self._end_overdue:
            self._end_overdue = False
            self._loop.call_later(delay_s, self._finish)

    def _arrive(self, queue: LaneQueue) -> None:
        if self.held:
            queue.overdue += 1
        elif queue.flight:
            envelope = queue.flight.popleft()
            if not self.receiver.closed:
                queue.inbox.append(envelope)
                self.receiver.wake()

    def _finish(self) -> None:
        if self.held:
            self._end_overdue = True
            return
        if not self.receiver.closed:
            for queue in (self.control, self.bulk):
                queue.inbox.extend(queue.flight)
                queue.flight.clear()
            self.receiver.lose(f"closed by {self.source}: {self._end_reason}")
        if self._conditions is not None:
            self._conditions.ended(self)

    def _break(self, sender: ChannelEnd) -> None:
        """Lose the session from here on; each end learns of it after a while."""
        assert self._conditions is not None
        self._broken = True
        self.end("connection lost", abrupt=False)
        self._loop.call_later(self._conditions.notice_s(self), sender.close, "connection lost")
