"""Links inside one process, on any loop; a simulated network adds its conditions to them.

A session is two directions (`channel.py`) with one link at each end. Nothing is copied and
nothing is encoded: the receiver gets the very object that was sent.

Together with another network they are one (`CompositeNetwork`): an address with a scheme (`ws://…`)
is dialled on the outer network; a bare name is dialled inside this process. A listener accepts from
both, and advertises the outer address.
"""

import asyncio
from collections.abc import Callable
from operator import attrgetter

from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.errors import DialFailed, LinkClosed, LocalFault
from messaging.links.channel import Channel, Conditions
from messaging.links.link import BacklogListener, Lane, Link, Listener, Network

Measure = Callable[[Envelope], int]
"""Returns how many bytes an envelope would have on a wire."""

BULK_CAPACITY = 64
BACKLOG = 128


class MemoryLink:
    """One end of a session inside this process; see `messaging.links.link.Link`."""

    def __init__(self, outgoing: Channel, incoming: Channel, measure: Measure) -> None:
        self.local = outgoing.source
        self.remote = outgoing.target
        self.close_reason: str | None = None
        self.bytes_sent = 0
        self.bytes_received = 0
        self._measure = measure
        self._outgoing = outgoing
        self._incoming = incoming
        self._waiter: asyncio.Future[None] | None = None
        incoming.receiver = self

    def __repr__(self) -> str:
        state = "open" if self.close_reason is None else f"closed: {self.close_reason}"
        return f"MemoryLink({self.local} -> {self.remote}, {state})"

    @property
    def host(self) -> None:
        return

    @property
    def holder(self) -> None:
        return

    @property
    def closed(self) -> bool:
        return self.close_reason is not None

    def send(self, envelope: Envelope, lane: Lane = Lane.CONTROL, topic: str | None = None) -> bool:
        """Queue an envelope; topics are ignored here."""
        if self.close_reason is not None:
            return False
        taken = self._outgoing.offer(self, envelope, lane)
        self.bytes_sent += self._measure(envelope) if taken else 0
        return taken

    def holds(self, topic: str) -> bool:
        return False  # an envelope leaves as soon as it is sent

    def withdraw(self, topic: str) -> bool:
        return False

    async def receive(self) -> Envelope:
        control = self._incoming.control.inbox
        bulk = self._incoming.bulk.inbox
        while not control:
            if bulk:
                return self._received(bulk.popleft())
            if self.close_reason is not None:
                raise LinkClosed(self.close_reason)
            if self._waiter is not None:
                raise LocalFault("a link has one reader, and it waits already")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._received(control.popleft())

    def _received(self, envelope: Envelope) -> Envelope:
        self.bytes_received += self._measure(envelope)
        return envelope

    def admit(self) -> None:
        return  # inside a process, bulk is accepted from the start

    def close(self, reason: str) -> None:
        if self.close_reason is None:
            self._forget_unread()
            self._end(reason)
            self._outgoing.end(reason)

    def lose(self, reason: str) -> None:
        """End as the peer ended the session; envelopes that arrived can still be received."""
        if self.close_reason is None:
            self._end(reason)
            self._outgoing.abandon()

    def die(self, *, silent: bool) -> None:
        """End like a killed process, or silently, like a machine that loses its power."""
        if self.close_reason is not None:
            return
        self._forget_unread()
        self._end("this host crashed")
        if silent:
            self._outgoing.vanish()
        else:
            self._outgoing.end("the process died", abrupt=True)

    def wake(self) -> None:
        """Let the waiting reader look into the inbox again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self, reason: str) -> None:
        self.close_reason = reason
        self.wake()

    def _forget_unread(self) -> None:
        self._incoming.control.inbox.clear()
        self._incoming.bulk.inbox.clear()


class MemoryListener(BacklogListener[MemoryLink]):
    """An address inside this process that others can dial."""

    def __init__(self, address: str, network: "MemoryNetwork") -> None:
        super().__init__(address, BACKLOG)
        self._network = network

    def close(self) -> None:
        super().close()
        self._network.forget_listener(self)


class MemoryNetwork:
    """Links between names inside one process; see `messaging.links.link.Network`.

    Without `conditions` of the network between the hosts, envelopes arrive at once.
    """

    def __init__(
        self,
        *,
        conditions: Conditions | None = None,
        bulk_capacity: int = BULK_CAPACITY,
        measure: Measure = attrgetter("size_bytes"),
    ) -> None:
        """Make a network with so many bulk envelopes in flight or unread, per direction."""
        self.conditions = conditions
        self._bulk_capacity = bulk_capacity
        self.measure = measure
        self._listeners: dict[str, MemoryListener] = {}

    async def dial(self, address: str, *, local: str) -> MemoryLink:
        if self.conditions is not None:
            await self.conditions.connect(local, address)
        listener = self._listeners.get(address)
        if listener is None:
            raise DialFailed(f"nobody listens at {address!r}")
        there = Channel(local, address, self._bulk_capacity, self.conditions)
        back = Channel(address, local, self._bulk_capacity, self.conditions)
        near, far = MemoryLink(there, back, self.measure), MemoryLink(back, there, self.measure)
        if not listener.offer(far):
            raise DialFailed(f"too many sessions wait at {address!r}")
        if self.conditions is not None:
            self.conditions.opened(there, back)
        return near

    def listen(self, address: str, *, guests: bool = False) -> MemoryListener:
        if address in self._listeners:
            raise LocalFault(f"somebody listens at {address!r} already")
        listener = MemoryListener(address, self)
        self._listeners[address] = listener
        return listener

    def listeners(self) -> tuple[MemoryListener, ...]:
        """Return all open listeners, in the order in which they were made."""
        return tuple(self._listeners.values())

    def forget_listener(self, listener: MemoryListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]


# --- together with another network ----------------------------------------------------------------


class CompositeListener(BacklogListener[Link]):
    """Accepts sessions from both networks, in the order of their arrival."""

    def __init__(self, inner: Listener, outer: Listener, scope: Scope) -> None:
        super().__init__(outer.address, BACKLOG)
        self._listeners = (inner, outer)
        for listener in self._listeners:
            scope.spawn(self._take(listener), f"accept-{listener.address}")

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        super().close()

    async def _take(self, listener: Listener) -> None:
        while True:  # until the listener closes
            try:
                link = await listener.accept()
            except LinkClosed:
                return
            if not self.offer(link):
                link.close("too many sessions wait here")


class CompositeNetwork:
    """Routes by the form of the address; implements `messaging.links.link.Network`."""

    def __init__(self, outer: Network, scope: Scope) -> None:
        """Join `outer`, which reaches other processes; `scope` owns the tasks that accept."""
        self._inner = MemoryNetwork()
        self._outer = outer
        self._scope = scope

    async def dial(self, address: str, *, local: str) -> Link:
        network: Network = self._outer if "://" in address else self._inner
        return await network.dial(address, local=local)

    def listen(self, address: str, *, guests: bool = False) -> CompositeListener:
        """Let others dial the outer address, and actors of this process the bare name."""
        outer = self._outer.listen(address, guests=guests)
        return CompositeListener(self._inner.listen(address), outer, self._scope)
