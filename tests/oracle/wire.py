"""A tap on the simulated network: what really crossed it, and the disturbances that a test wants.

Payloads are copied when they are sent: a value that is written to afterwards does not change here.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from islands.protocol.messages.training import Contribution, FragmentUpdate
from messaging.envelope import Envelope
from messaging.links.channel import Channel, Conditions, LaneQueue


@dataclass(frozen=True, slots=True)
class Crossing:
    """One envelope that was sent: `arrivals_s` is empty if it was dropped."""

    source: str
    target: str
    body: object
    payload: bytes
    sent_s: float
    arrivals_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Disturbances:
    """What happens to bulk on its way; contributions are counted per sender from 1."""

    twice: dict[str, int] = field(default_factory=dict)
    late: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Which contribution comes so many seconds later."""
    slow_values: dict[str, float] = field(default_factory=dict)
    """Seconds that every published value takes longer to a learner."""


class Tap:
    """Conditions that record what they let through, and otherwise leave it to others.

    Attributes:
        crossings: Every envelope with a payload, in the order of sending.
        payload_bytes: Bytes of payloads sent, by the name of the sending end.
        envelopes: Envelopes sent with or without a payload, by the name of the sending end.
    """

    def __init__(self, inner: Conditions, disturbances: Disturbances) -> None:
        self.crossings: list[Crossing] = []
        self.payload_bytes: Counter[str] = Counter()
        self.envelopes: Counter[str] = Counter()
        self._inner = inner
        self._disturbances = disturbances
        self._contributions: Counter[str] = Counter()

    async def connect(self, source: str, target: str) -> None:
        await self._inner.connect(source, target)

    def opened(self, there: Channel, back: Channel) -> None:
        self._inner.opened(there, back)

    def ended(self, way: Channel) -> None:
        self._inner.ended(way)

    def damages(self, way: Channel) -> bool:
        return self._inner.damages(way)

    def notice_s(self, way: Channel) -> float:
        return self._inner.notice_s(way)

    def keeps_tail(self, way: Channel, queue: LaneQueue) -> bool:
        return self._inner.keeps_tail(way, queue)

    def arrivals(self, way: Channel, queue: LaneQueue, envelope: Envelope) -> tuple[float, ...]:
        arrivals_s = self._inner.arrivals(way, queue, envelope)
        if isinstance(envelope.body, Contribution):
            arrivals_s = self._disturbed(way.source, arrivals_s)
        elif isinstance(envelope.body, FragmentUpdate):
            slower_s = self._disturbances.slow_values.get(way.target, 0.0)
            arrivals_s = tuple(at_s + slower_s for at_s in arrivals_s)
        payload = b"".join(envelope.payload)
        self.envelopes[way.source] += 1
        self.payload_bytes[way.source] += len(payload)
        if payload:
            sent_s = asyncio.get_running_loop().time()
            crossing = Crossing(way.source, way.target, envelope.body, payload, sent_s, arrivals_s)
            self.crossings.append(crossing)
        return arrivals_s

    def _disturbed(self, source: str, arrivals_s: tuple[float, ...]) -> tuple[float, ...]:
        self._contributions[source] += 1
        number = self._contributions[source]
        if self._disturbances.twice.get(source) == number:
            arrivals_s = (*arrivals_s, *arrivals_s)
        delayed, delay_s = self._disturbances.late.get(source, (0, 0.0))
        return tuple(at_s + delay_s * (delayed == number) for at_s in arrivals_s)

    def contributions(self) -> list[tuple[Contribution, Crossing]]:
        return [(c.body, c) for c in self.crossings if isinstance(c.body, Contribution)]

    def updates(self) -> list[tuple[FragmentUpdate, Crossing]]:
        """Published values in the order of sending."""
        return [(c.body, c) for c in self.crossings if isinstance(c.body, FragmentUpdate)]
