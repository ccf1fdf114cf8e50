"""Links inside one process, on any loop, and the place where a simulated network gets its say.

Without conditions an envelope is in the peer's inbox when `send` returns. With conditions each
envelope spends a time in flight that the conditions decide; timers say *when* the next envelope of
a lane arrives, a queue says *which*, so order within a lane cannot be upset by equal times.

What a drop means follows from what carries real links: TCP neither loses nor repeats bytes within
a session. So bulk that is dropped is bulk that was skipped, and control that is dropped takes the
rest of the session with it.
"""

import asyncio
from collections import deque
from typing import Protocol

from messaging.envelope import Envelope
from messaging.errors import DialFailed, LinkClosed, LocalFault, MailboxClosed
from messaging.link import Lane
from messaging.mailbox import Mailbox

CONTROL_CAPACITY = 1024
BULK_CAPACITY = 64
BACKLOG = 128


class Conditions(Protocol):
    """What lies between two hosts: decides when and whether an envelope arrives."""

    async def connect(self, source: str, target: str) -> None:
        """Wait as long as opening a session takes.

        Raises:
            DialFailed: No answer came in time.
        """
        ...

    def opened(self, there: "Way", back: "Way") -> None:
        """Take note of the two directions of a new session."""
        ...

    def ended(self, way: "Way") -> None:
        """Forget a direction: nothing travels on it any more."""
        ...

    def arrivals(self, way: "Way", queue: "LaneQueue", envelope: Envelope) -> tuple[float, ...]:
        """Return the loop times at which the envelope arrives.

        Two times deliver it twice. None at all drops it: a bulk envelope counts as skipped, a
        control envelope breaks the session.
        """
        ...

    def notice_s(self, way: "Way") -> float:
        """Return after how many seconds the far end of a direction learns that it has ended."""
        ...

    def keeps_tail(self, way: "Way", queue: "LaneQueue") -> bool:
        """Decide whether what is in flight still arrives although the sender is gone."""
        ...


class LaneQueue:
    """One lane of one direction: what is in flight and what waits to be received.

    Attributes:
        lane: Which lane.
        capacity: Bound on both together.
        flight: Envelopes under way, in order.
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


class Way:
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
        self, source: str, target: str, network: "MemoryNetwork", loop: asyncio.AbstractEventLoop
    ) -> None:
        self.source = source
        self.target = target
        self.receiver: MemoryLink
        self.control = LaneQueue(Lane.CONTROL, network.control_capacity)
        self.bulk = LaneQueue(Lane.BULK, network.bulk_capacity)
        self.held = False
        self._conditions = network.conditions
        self._loop = loop
        self._broken = False
        self._end_reason: str | None = None
        self._end_overdue = False

    def offer(self, sender: "MemoryLink", envelope: Envelope, lane: Lane) -> bool:
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
            self.receiver.abandon()
        if self._conditions is not None:
            self._conditions.ended(self)

    def _break(self, sender: "MemoryLink") -> None:
        """Lose the session from here on; each end learns of it after a while."""
        assert self._conditions is not None
        self._broken = True
        self.end("connection lost", abrupt=False)
        self._loop.call_later(self._conditions.notice_s(self), sender.close, "connection lost")


class MemoryLink:
    """One end of a session inside this process; see `messaging.link.Link`."""

    __slots__ = ("_incoming", "_outgoing", "_waiter", "close_reason", "local", "remote")

    def __init__(self, outgoing: Way, incoming: Way) -> None:
        self.local = outgoing.source
        self.remote = outgoing.target
        self.close_reason: str | None = None
        self._outgoing = outgoing
        self._incoming = incoming
        self._waiter: asyncio.Future[None] | None = None
        incoming.receiver = self

    def __repr__(self) -> str:
        state = "open" if self.close_reason is None else f"closed: {self.close_reason}"
        return f"MemoryLink({self.local} -> {self.remote}, {state})"

    @property
    def closed(self) -> bool:
        """Whether the session is over."""
        return self.close_reason is not None

    def send(self, envelope: Envelope, lane: Lane = Lane.CONTROL) -> bool:
        """Offer an envelope; False if it was not taken."""
        if self.close_reason is not None:
            return False
        return self._outgoing.offer(self, envelope, lane)

    async def receive(self) -> Envelope:
        """Wait for the next envelope, control before bulk.

        Raises:
            LinkClosed: The session is over and everything that arrived has been received.
            LocalFault: Another reader waits already.
        """
        control = self._incoming.control.inbox
        bulk = self._incoming.bulk.inbox
        while not control:
            if bulk:
                return bulk.popleft()
            if self.close_reason is not None:
                raise LinkClosed(self.close_reason)
            if self._waiter is not None:
                raise LocalFault("a link has one reader, and it waits already")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return control.popleft()

    def close(self, reason: str) -> None:
        """End the session; what waits here unread is forgotten."""
        if self.close_reason is None:
            self.forget_unread()
            self.lose(reason)
            self._outgoing.end(reason)

    def lose(self, reason: str) -> None:
        """Learn that the session is over; what has arrived can still be received."""
        if self.close_reason is None:
            self.close_reason = reason
            self.wake()

    def abandon(self) -> None:
        """Send no more: the peer is gone and has said so."""
        self._outgoing.abandon()

    def die(self, *, silent: bool) -> None:
        """End as a process that is killed; `silent` as a machine that loses its power."""
        self.forget_unread()
        self.lose("this host crashed")
        if silent:
            self._outgoing.vanish()
        else:
            self._outgoing.end("the process died", abrupt=True)

    def forget_unread(self) -> None:
        """Drop what has arrived and was not received."""
        self._incoming.control.inbox.clear()
        self._incoming.bulk.inbox.clear()

    def wake(self) -> None:
        """Let the waiting reader look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class MemoryListener:
    """An address inside this process where others can dial."""

    def __init__(self, address: str, network: "MemoryNetwork") -> None:
        self.address = address
        self._network = network
        self._backlog: Mailbox[MemoryLink] = Mailbox(BACKLOG)

    async def accept(self) -> MemoryLink:
        """Wait for the next session that a peer opened.

        Raises:
            LinkClosed: The listener is closed.
        """
        try:
            return await self._backlog.get()
        except MailboxClosed as error:
            raise LinkClosed(f"nobody listens at {self.address!r} any more") from error

    def close(self) -> None:
        """Accept nobody any more; sessions that wait unaccepted are closed."""
        self._backlog.close()
        for link in self._backlog.clear():
            link.close("not accepted")
        self._network.forget_listener(self)

    def offer(self, link: MemoryLink) -> bool:
        """Queue a session for `accept`; False if too many wait."""
        return self._backlog.put_nowait(link)


class MemoryNetwork:
    """Links between names inside one process; see `messaging.link.Network`.

    Attributes:
        control_capacity: Control envelopes that may be in flight or unread, per direction.
        bulk_capacity: The same for bulk envelopes.
        conditions: What lies between the hosts; None: nothing does.
    """

    def __init__(
        self,
        *,
        conditions: Conditions | None = None,
        control_capacity: int = CONTROL_CAPACITY,
        bulk_capacity: int = BULK_CAPACITY,
    ) -> None:
        self.conditions = conditions
        self.control_capacity = control_capacity
        self.bulk_capacity = bulk_capacity
        self._listeners: dict[str, MemoryListener] = {}

    async def dial(self, address: str, *, local: str) -> MemoryLink:
        """Open a session with whoever listens at `address`, under the name `local`.

        Raises:
            DialFailed: Nobody listens there, or no answer came in time.
        """
        if self.conditions is not None:
            await self.conditions.connect(local, address)
        listener = self._listeners.get(address)
        if listener is None:
            raise DialFailed(f"nobody listens at {address!r}")
        loop = asyncio.get_running_loop()
        there = Way(local, address, self, loop)
        back = Way(address, local, self, loop)
        near, far = MemoryLink(there, back), MemoryLink(back, there)
        if not listener.offer(far):
            raise DialFailed(f"too many sessions wait at {address!r}")
        if self.conditions is not None:
            self.conditions.opened(there, back)
        return near

    def listen(self, address: str) -> MemoryListener:
        """Let others dial `address`.

        Raises:
            LocalFault: The address is taken.
        """
        if address in self._listeners:
            raise LocalFault(f"somebody listens at {address!r} already")
        listener = MemoryListener(address, self)
        self._listeners[address] = listener
        return listener

    def listeners(self) -> tuple[MemoryListener, ...]:
        """Return everybody who listens, in the order in which they began."""
        return tuple(self._listeners.values())

    def forget_listener(self, listener: MemoryListener) -> None:
        """Free the listener's address."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]
