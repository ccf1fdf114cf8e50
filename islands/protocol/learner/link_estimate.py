"""What a learner's link does with contributions: how long a message takes, and how long bytes take.

That a link took a contribution says nothing of its arrival, for sockets and routers hold much. So
the syncer acknowledges each contribution of a learner that measures, as soon as its last byte has
arrived (`ContributionReceived`). With every contribution an empty message goes there and back
(`LinkProbe`) on the lane that never waits for bulk. With offers at aᵢ, acknowledgements at tᵢ, and
latency L (there and back, of the newest probes on average), the bytes of exchange i took

    transferᵢ = tᵢ − max(aᵢ + L, tᵢ₋₁)

since contributions leave one after another: what was still in line is not counted as its own time.
All times are of the learner's own clock.
"""

from dataclasses import dataclass, field

from islands.protocol.identities import Ticket
from islands.protocol.moving_average import MovingAverage

TRANSFER_LEAST_S = 1e-6
"""Shortest time that a transfer may have taken: a latency that varies may exceed an exchange."""

PROBES_KEPT = 16
"""Probes that are waited for; the answers to older ones are ignored."""


@dataclass(frozen=True, slots=True)
class MeasuredExchange:
    """One contribution on its way: all seconds until its arrival was known, and those of its bytes.

    Where it has not arrived yet, `under_way`, both are what has passed so far.
    """

    size_bytes: int
    seconds: float
    transfer_s: float
    under_way: bool = False

    @property
    def bytes_per_s(self) -> float:
        """The bandwidth that it had; while it is under way, the most that it may have had."""
        return self.size_bytes / self.transfer_s


@dataclass(frozen=True, slots=True)
class _Offered:
    size_bytes: int
    at_s: float


@dataclass(slots=True)
class LinkEstimate:
    """The exchanges under way over the link that is open, and its latency.

    `latency` is None until a probe came back; `received_s` is when the newest acknowledgement came.
    `open` is in the order of offering.
    """

    latency: MovingAverage = field(default_factory=MovingAverage)
    received_s: float = float("-inf")
    open: dict[Ticket, _Offered] = field(default_factory=dict)
    probes: dict[int, float] = field(default_factory=dict)
    probed: int = 0

    def probe(self, now_s: float) -> int:
        """Note that a probe is sent, and return its number."""
        self.probed += 1
        self.probes[self.probed] = now_s
        if len(self.probes) > PROBES_KEPT:
            del self.probes[min(self.probes)]
        return self.probed

    def answered(self, number: int, now_s: float) -> None:
        """Take in a probe that came back."""
        sent_s = self.probes.pop(number, None)
        if sent_s is not None:
            self.latency.add(max(0.0, now_s - sent_s))

    def offered(self, ticket: Ticket, size_bytes: int, now_s: float) -> None:
        """Note that the link took a contribution."""
        self.open[ticket] = _Offered(size_bytes, now_s)

    def skipped(self, ticket: Ticket) -> None:
        """Forget a contribution that the link did not take."""
        self.open.pop(ticket, None)

    def received(self, ticket: Ticket, now_s: float) -> MeasuredExchange | None:
        """Take in an acknowledgement; None if that contribution is not awaited.

        Those offered before it will not arrive any more: while they waited, newer ones of the same
        fragments replaced them.
        """
        if ticket not in self.open:
            return None
        while (first := next(iter(self.open))) != ticket:
            del self.open[first]
        offered = self.open.pop(ticket)
        measured = self._measured(offered, now_s)
        self.received_s = now_s
        return measured

    def under_way(self, now_s: float) -> MeasuredExchange | None:
        """Return the oldest exchange that has not ended; None if none is under way."""
        if not self.open:
            return None
        return self._measured(next(iter(self.open.values())), now_s, under_way=True)

    def _measured(
        self, offered: _Offered, now_s: float, *, under_way: bool = False
    ) -> MeasuredExchange:
        begun_s = max(offered.at_s + (self.latency.value or 0.0), self.received_s)
        transfer_s = max(now_s - begun_s, TRANSFER_LEAST_S)
        return MeasuredExchange(offered.size_bytes, now_s - offered.at_s, transfer_s, under_way)

    def link_changed(self) -> None:
        """Forget what was under way over a link that is gone; the latency stays as a guess."""
        self.open.clear()
        self.probes.clear()
        self.received_s = float("-inf")
