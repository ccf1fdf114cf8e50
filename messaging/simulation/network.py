"""A simulated network with latency, limited bandwidth and injected faults, repeatable by its seed.

It is modelled after TCP, per direction of each session:

    latency     latency_s, plus up to jitter_s; order within a lane holds
    bandwidth   envelopes of a lane leave one after the other, each after size / bandwidth seconds;
                the control lane does not wait for the bulk lane. Payloads may count as larger than
                they are (payload_scale), where a toy stands for a model
    drop        bulk: the envelope is skipped (`send` returns False); control: the session breaks
                there, later envelopes are lost, and both ends learn of it one latency later
    duplicate   the envelope is delivered twice in a row
    corrupt     the envelope is changed on its way; its receiver ends the session when it arrives,
                since every frame has a checksum
    reset       a session breaks at once, with what is in flight; both ends see so
    freeze      a host's process is stopped; sessions with it stay open, and what is sent to it
                waits, as does who dials it, until the process goes on or its timeout ends
    cut         envelopes that come due wait; after healing they arrive as TCP would retransmit
                them, up to retransmit_s late, and so possibly after their sender has opened a new
                session. Nothing reports a cut: the ends must detect it by their liveness timeout
    crash       every link and listener of a host dies. Its peers learn of it one latency later, or
                when the cut heals, or never (silent: a machine without power)

The name of a host is the part before the colon of its addresses, and of its `local` name.
"""

import asyncio
import random
from dataclasses import dataclass

from messaging.envelope import NOMINAL_HEADER_BYTES, Envelope
from messaging.errors import DialFailed
from messaging.links.channel import Channel, LaneQueue
from messaging.links.memory_link import MemoryNetwork


@dataclass(frozen=True, slots=True)
class Route:
    """The conditions of the network path from one host to another.

    Attributes:
        latency_s: Least time from sending to arrival.
        jitter_s: Largest additional latency, evenly distributed.
        bandwidth_bytes_per_s: Bandwidth of each lane of each session.
        payload_scale: By how many times a payload counts as larger than it is; headers do not.
        drop: Probability that an envelope is dropped.
        duplicate: Probability that an envelope is delivered twice.
        corrupt: Probability that an envelope is changed on its way.
        keep_tail: Probability that envelopes in flight arrive although their sender has gone.
        retransmit_s: After healing, held envelopes arrive up to so many seconds late.
        connect_timeout_s: How long dialling a host that cannot answer takes to fail.
    """

    latency_s: float = 0.01
    jitter_s: float = 0.0
    bandwidth_bytes_per_s: float = float("inf")
    payload_scale: float = 1.0
    drop: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    keep_tail: float = 0.5
    retransmit_s: float = 1.0
    connect_timeout_s: float = 3.0


def host_of(address: str) -> str:
    """Return the host of an address: the part before its first colon."""
    return address.partition(":")[0]


class SimulatedNetwork(MemoryNetwork):
    """Memory links under seeded conditions, and the methods that inject faults.

    `carried_bytes` are those of all envelopes that were sent, as large as their routes count them.
    """

    def __init__(self, rng: random.Random, route: Route | None = None) -> None:
        """Make a network without faults; the caller must seed `rng`, its only randomness."""
        super().__init__(conditions=self)
        self.route = route or Route()
        self.carried_bytes = 0.0
        self.rng = rng
        self.channels: dict[Channel, None] = {}  # in the order of their opening
        self._channels_to: dict[str, dict[Channel, None]] = {}  # the same, by receiving host
        self._routes: dict[tuple[str, str], Route] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._frozen: dict[str, asyncio.Event] = {}

    def route_between(self, source: str, target: str) -> Route:
        return self._routes.get((source, target), self.route)

    def set_route(self, source: str, target: str, route: Route) -> None:
        """Replace the route from `source` to `target`, for open sessions as well."""
        self._routes[source, target] = route

    def clear_routes(self) -> None:
        """Undo every `set_route`: all hosts have the route that is `route`."""
        self._routes.clear()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Cut the direction from host `a` to host `b`, and the way back unless `one_way`."""
        self._cuts[a, b] = None
        if not one_way:
            self._cuts[b, a] = None
        for channel in self.channels:
            if self.is_cut(*_hosts(channel)):
                channel.hold()

    def heal(self, a: str, b: str) -> None:
        """Undo every cut between two hosts, in both directions."""
        self._cuts.pop((a, b), None)
        self._cuts.pop((b, a), None)
        self._release_healed()

    def heal_all(self) -> None:
        """Undo every cut; the routes, with their drops and duplicates, stay as they are set."""
        self._cuts.clear()
        self._release_healed()

    def reset(self, a: str, b: str) -> bool:
        """Break all sessions between two hosts, as a TCP RST does; return whether there were any.

        What is in flight is lost, also parts of a message.
        """
        struck = [channel for channel in self.channels if set(_hosts(channel)) == {a, b}]
        for channel in struck:
            channel.reset()
        return bool(struck)

    @property
    def frozen(self) -> tuple[str, ...]:
        """The hosts whose process is stopped, in the order in which they were stopped."""
        return tuple(self._frozen)

    def freeze(self, host: str) -> None:
        """Stop a host's process: who dials it waits for an answer."""
        self._frozen.setdefault(host, asyncio.Event())

    def thaw(self, host: str) -> None:
        """Let a host's process go on: it answers those who still wait."""
        stopped = self._frozen.pop(host, None)
        if stopped is not None:
            stopped.set()

    def crash(self, host: str, *, silent: bool = False) -> None:
        """Kill every link and listener of a host; it may dial and listen again at once.

        If it is `silent`, the machine vanishes, and its peers never learn of it.
        """
        for listener in self.listeners():
            if host_of(listener.address) == host:
                listener.close()
        for channel in tuple(self._channels_to.get(host, ())):
            channel.receiver.die(silent=silent)

    def _release_healed(self) -> None:
        for channel in tuple(self.channels):
            source, target = _hosts(channel)
            if channel.held and not self.is_cut(source, target):
                route = self.route_between(source, target)
                channel.release(route.latency_s + route.retransmit_s * self.rng.random())

    # ------------------------------------ conditions of its links; see `messaging.links.channel`

    async def connect(self, source: str, target: str) -> None:
        a, b = host_of(source), host_of(target)
        route = self.route_between(a, b)
        await asyncio.sleep(route.latency_s + self.route_between(b, a).latency_s)
        limit_s = route.connect_timeout_s
        refused = DialFailed(f"no answer from {target!r} within {limit_s} s")
        if self.is_cut(a, b) or self.is_cut(b, a):
            await asyncio.sleep(limit_s)
            raise refused
        if b in self._frozen:
            try:
                async with asyncio.timeout(limit_s):
                    while (stopped := self._frozen.get(b)) is not None:
                        await stopped.wait()
            except TimeoutError as error:
                raise refused from error

    def opened(self, there: Channel, back: Channel) -> None:
        for channel in (there, back):
            self.channels[channel] = None
            self._channels_to.setdefault(host_of(channel.target), {})[channel] = None

    def ended(self, channel: Channel) -> None:
        self.channels.pop(channel, None)
        host = host_of(channel.target)
        remaining = self._channels_to.get(host, {})
        remaining.pop(channel, None)
        if not remaining:
            self._channels_to.pop(host, None)

    def arrivals(self, channel: Channel, queue: LaneQueue, envelope: Envelope) -> tuple[float, ...]:
        route = self.route_between(*_hosts(channel))
        if route.drop and self.rng.random() < route.drop:
            return ()
        now_s = asyncio.get_running_loop().time()
        queue.free_at_s = max(now_s, queue.free_at_s)
        payload_bytes = envelope.size_bytes - NOMINAL_HEADER_BYTES
        size_bytes = NOMINAL_HEADER_BYTES + route.payload_scale * payload_bytes
        self.carried_bytes += size_bytes
        queue.free_at_s += size_bytes / route.bandwidth_bytes_per_s
        arrival_s = queue.free_at_s + route.latency_s
        if route.jitter_s:
            arrival_s += route.jitter_s * self.rng.random()
        if route.duplicate and self.rng.random() < route.duplicate:
            return (arrival_s, arrival_s)
        return (arrival_s,)

    def damages(self, channel: Channel) -> bool:
        corrupt = self.route_between(*_hosts(channel)).corrupt
        return corrupt > 0 and self.rng.random() < corrupt

    def notice_s(self, channel: Channel) -> float:
        return self.route_between(*_hosts(channel)).latency_s

    def keeps_tail(self, channel: Channel, queue: LaneQueue) -> bool:
        return self.rng.random() < self.route_between(*_hosts(channel)).keep_tail


def _hosts(channel: Channel) -> tuple[str, str]:
    return host_of(channel.source), host_of(channel.target)
