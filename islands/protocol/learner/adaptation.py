"""`precision: adaptive`: a learner chooses the precision of its answers by its measured link.

An exchange is to end within the **window** of τ·ξ_step seconds, behind which it is hidden, and
before the next contribution leaves, H/P·ξ_step later. So the bytes of the largest fragment may take

    budget = min(max(τ·ξ_step − L, τ·ξ_step / 2), H/P·ξ_step)

where L is the link's latency: of a latency beyond half of the window no precision makes less, and
no bytes are spared for it. The learner sends the finest precision that fits; where not even the
coarsest does, it answers every n-th pull with that, the smallest n for which the bytes take at most
n budgets. Pulls go around the fragments, and so do the ones that are answered.

**Coarser at once**: when an exchange did not fit, or has been under way for too long, to what fits
the bandwidth that it had. While one is under way for too long no pull is answered, since what is
sent then waits behind it. **Finer after some time**: when several exchanges in a row had so much
room that a finer choice would take half of the budget; by at most four times the bytes, since a
short transfer says little of a long one. So where the time of bytes varies by less than two, no
choice is ever left again that was left before. On a link that varies more, twice as many exchanges
are asked for whenever a finer choice did not last. The learner begins with the coarsest precision,
as nothing was measured.

ξ_step is the learner's own step time, or that of the fleet by the rounds it hears of, if that is
shorter. With `overlap_steps: auto` τ is its upper limit.

**What is measured.** That a link took a contribution says nothing of its arrival, for sockets and
routers hold much. So the syncer acknowledges each contribution of a learner that measures, as soon
as its last byte has arrived (`ContributionReceived`). With every contribution an empty message goes
there and back (`LinkProbe`) on the lane that never waits for bulk. With offers at aᵢ,
acknowledgements at tᵢ, and latency L (there and back, of the newest probes on average), the bytes
of exchange i took

    transferᵢ = tᵢ − max(aᵢ + L, tᵢ₋₁)

since contributions leave one after another: what was still in line is not counted as its own time.
All times are of the learner's own clock.

While the run closes, or compute stands still, every pull is answered: no later one would bring what
was left out.

Reference: a codec for each learner by its measured link, arXiv 2601.02360.
Deviation (ours): the order of choices, the hysteresis, and answering every n-th pull.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from islands.protocol.identities import Ticket
from islands.protocol.running_statistics import MovingAverage
from islands.protocol.settings.choices import Precision
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.learner_entries import Adapted

FINEST_FIRST = tuple(precision for precision in Precision if precision.adaptive_level)

CONFIRMED = 3
"""Exchanges with room to spare, in a row, before a finer choice; at first, and at most:"""

CONFIRMED_MOST = 48
LASTED = 16
"""A finer choice that lasted for so many exchanges was right, whatever comes then."""

ROOM = 0.5
"""Share of the budget that a finer choice may take by the exchanges before it."""

FINER_AT_ONCE = 4
"""Most times the bytes of a finer choice may exceed those of the one before it."""

EVERY_MOST = 1024
"""Largest n."""

TRANSFER_LEAST_S = 1e-6
"""Shortest time that a transfer may have taken: a latency that varies may exceed an exchange."""

PROBES_KEPT = 16
"""Probes that are waited for; the answers to older ones are ignored."""


class GivenPrecision:
    """The precision that the settings give; nothing is measured, and every pull is answered.

    Args:
        precision: that of every contribution.

    Attributes:
        acknowledges: whether the syncer is to acknowledge contributions.
    """

    acknowledges = False

    def __init__(self, precision: Precision) -> None:
        self.precision = precision

    def stepped(self, step_s: float) -> None:
        """Note the time of a step; 0 if it is not known."""

    def link_changed(self) -> None:
        """Forget what was under way over a link that is gone."""

    def offered(self, ticket: Ticket, size_bytes: int, now_s: float) -> int | None:
        """Note that the link took a contribution; returns the number of the probe to send."""
        return None

    def skipped(self, ticket: Ticket) -> None:
        """Forget a contribution that the link did not take."""

    def probed(self, number: int, now_s: float) -> None:
        """Note a probe that came back."""

    def received(self, ticket: Ticket, now_s: float) -> Adapted | None:
        """Note that a contribution has arrived; returns the change that follows from it."""
        return None

    def pulled(self, ticket: Ticket, now_s: float) -> Adapted | None:
        """Note that a pull has come; returns the change if an exchange is under way too long."""
        return None

    def why_declined(self, fragment: int, ticket: Ticket, now_s: float) -> str | None:
        return None


def precision_of(
    settings: RunSettings, fragments: int, largest_bytes: Callable[[Precision], int]
) -> GivenPrecision:
    """Return the precision that a learner begins with.

    A precision is left out that has no fewer bytes than a finer one, as where `merge_moments` has
    most values sent exactly.
    """
    if settings.precision is not Precision.ADAPTIVE:
        return GivenPrecision(settings.precision)
    levels: list[Level] = []
    for precision in FINEST_FIRST[: FINEST_FIRST.index(settings.precision_coarsest) + 1]:
        largest = largest_bytes(precision)
        if not levels or largest < levels[-1].size_bytes:
            levels.append(Level(precision, largest))
    return Adaptation(
        levels,
        overlap_steps=settings.overlap_steps_max,
        round_interval_steps=settings.round_interval_steps(fragments),
        fragments=fragments,
    )


@dataclass(frozen=True, slots=True)
class Level:
    """A precision, and the bytes of the largest fragment in it."""

    precision: Precision
    size_bytes: int


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """The index of a level, finest first, and n; the smaller choice is the finer one."""

    level: int
    every: int = 1


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
        """Measure the latency by a probe that came back."""
        sent_s = self.probes.pop(number, None)
        if sent_s is not None:
            self.latency.add(max(0.0, now_s - sent_s))

    def offered(self, ticket: Ticket, size_bytes: int, now_s: float) -> None:
        self.open[ticket] = _Offered(size_bytes, now_s)

    def skipped(self, ticket: Ticket) -> None:
        self.open.pop(ticket, None)

    def received(self, ticket: Ticket, now_s: float) -> MeasuredExchange | None:
        """Measure an exchange that has ended; None if that contribution is not awaited.

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
        self.open.clear()
        self.probes.clear()
        self.received_s = float("-inf")


class Adaptation(GivenPrecision):
    """The choice of one learner, from what it measures.

    Args:
        levels: the precisions that it may use, each with fewer bytes than the one before.
        overlap_steps: τ.
        round_interval_steps: H/P.
        fragments: P.
    """

    def __init__(
        self,
        levels: Sequence[Level],
        *,
        overlap_steps: int,
        round_interval_steps: float,
        fragments: int,
    ) -> None:
        """Begin with the coarsest precision, and answer every pull."""
        super().__init__(levels[-1].precision)
        self.link = LinkEstimate()
        self.choice = Choice(len(levels) - 1)
        self.levels = tuple(levels)
        self._overlap_steps = overlap_steps
        self._round_interval_steps = round_interval_steps
        self._step_s = MovingAverage()
        self._round_s = MovingAverage()
        self._measured_from: tuple[int, int, float] | None = None
        self._roomy = 0
        self._slowest = inf
        self._confirmed = CONFIRMED
        self._since_finer: int | None = None  # exchanges since then, if it was the last change
        self._since_answer = EVERY_MOST
        self._answers = [0] * fragments
        self._declined: dict[int, Ticket] = {}

    @property
    def budget_s(self) -> float | None:
        """Seconds that the bytes of one contribution may take; None while steps are not known."""
        step_s = self._step_s.value
        if step_s is None:
            return None
        round_s = step_s * self._round_interval_steps
        if self._round_s.value is not None:
            round_s = min(round_s, self._round_s.value)
        window_s = self._overlap_steps * round_s / self._round_interval_steps
        return min(max(window_s - (self.link.latency.value or 0.0), window_s / 2), round_s)

    acknowledges = True

    def stepped(self, step_s: float) -> None:
        if step_s > 0:
            self._step_s.add(step_s)

    # --- exchanges ----------------------------------------------------------------------------

    def offered(self, ticket: Ticket, size_bytes: int, now_s: float) -> int | None:
        """Measure a contribution from now on, and the link's latency beside it."""
        self.link.offered(ticket, size_bytes, now_s)
        return self.link.probe(now_s)

    def skipped(self, ticket: Ticket) -> None:
        self.link.skipped(ticket)

    def probed(self, number: int, now_s: float) -> None:
        self.link.answered(number, now_s)

    def received(self, ticket: Ticket, now_s: float) -> Adapted | None:
        """Change the choice if the exchange did not fit, or several had room to spare."""
        exchange = self.link.received(ticket, now_s)
        budget_s = self.budget_s
        if exchange is None or not budget_s:
            return None
        self._count_since_finer()
        if not self._fits(exchange.bytes_per_s, budget_s):
            return self._go_coarser(exchange, budget_s, "an exchange took too long")
        finer = self._affordable(exchange.bytes_per_s, ROOM * budget_s)
        if finer >= self.choice:
            self._roomy, self._slowest = 0, inf
            return None
        self._roomy += 1
        self._slowest = min(self._slowest, exchange.bytes_per_s)
        if self._roomy < self._confirmed:
            return None
        return self._go_finer(exchange, budget_s)

    def _count_since_finer(self) -> None:
        """Count an exchange; a finer choice that lasted is no longer held against the next one."""
        if self._since_finer is not None:
            self._since_finer += 1
            if self._since_finer >= LASTED:
                self._since_finer, self._confirmed = None, CONFIRMED

    def _fits(self, bytes_per_s: float, budget_s: float) -> bool:
        size_bytes = self.levels[self.choice.level].size_bytes
        return size_bytes / bytes_per_s <= budget_s * self.choice.every

    def _affordable(self, bytes_per_s: float, budget_s: float) -> Choice:
        """The finest choice whose bytes take at most so long for each pull."""
        for index, level in enumerate(self.levels):
            if level.size_bytes / bytes_per_s <= budget_s:
                return Choice(index)
        budgets = self.levels[-1].size_bytes / bytes_per_s / budget_s
        return Choice(len(self.levels) - 1, ceil(min(budgets, EVERY_MOST)))

    def _go_coarser(
        self, exchange: MeasuredExchange, budget_s: float, reason: str
    ) -> Adapted | None:
        choice = self._affordable(exchange.bytes_per_s, budget_s)
        if choice <= self.choice:
            return None
        if self._since_finer is not None:
            self._confirmed = min(2 * self._confirmed, CONFIRMED_MOST)
            self._since_finer = None
        return self._changed(choice, exchange, budget_s, reason)

    def _go_finer(self, exchange: MeasuredExchange, budget_s: float) -> Adapted:
        choice = self._affordable(self._slowest, ROOM * budget_s)
        most_bytes = FINER_AT_ONCE * self.levels[self.choice.level].size_bytes
        while self.levels[choice.level].size_bytes > most_bytes:
            choice = Choice(choice.level + 1)
        self._since_finer = 0
        reason = f"{self._roomy} exchanges in a row had room to spare"
        return self._changed(choice, exchange, budget_s, reason)

    def _changed(
        self, choice: Choice, exchange: MeasuredExchange, budget_s: float, reason: str
    ) -> Adapted:
        if choice.every != self.choice.every:
            self._answers = [0] * len(self._answers)
        self.choice, self.precision = choice, self.levels[choice.level].precision
        self._roomy, self._slowest = 0, inf
        return Adapted(
            precision=self.precision,
            every=choice.every,
            reason=reason,
            bytes=exchange.size_bytes,
            seconds=exchange.seconds,
            bytes_per_s=exchange.bytes_per_s,
            latency_s=self.link.latency.value or 0.0,
            budget_s=budget_s,
        )

    # --- pulls --------------------------------------------------------------------------------

    def pulled(self, ticket: Ticket, now_s: float) -> Adapted | None:
        """Measure rounds; change the choice if an exchange is under way for too long."""
        self._measure_rounds(ticket, now_s)
        exchange, budget_s = self.link.under_way(now_s), self.budget_s
        if exchange is None or not budget_s or not self._too_long(exchange, budget_s):
            return None
        return self._go_coarser(exchange, budget_s, "an exchange is under way for too long")

    def _too_long(self, exchange: MeasuredExchange, budget_s: float) -> bool:
        return exchange.transfer_s > budget_s * self.choice.every

    def _measure_rounds(self, ticket: Ticket, now_s: float) -> None:
        """Average the seconds of a round over P of them, also over those that did not ask us."""
        before = self._measured_from
        if before is None or before[0] != ticket.epoch:
            self._measured_from = ticket.epoch, ticket.round, now_s
        elif ticket.round - before[1] >= len(self._answers) and now_s > before[2]:
            self._round_s.add((now_s - before[2]) / (ticket.round - before[1]))
            self._measured_from = ticket.epoch, ticket.round, now_s

    def why_declined(self, fragment: int, ticket: Ticket, now_s: float) -> str | None:
        """Decline while an exchange is under way for too long, and all but every n-th pull.

        A pull that comes again after it was declined is answered: its round lacks a quorum.
        """
        exchange, budget_s = self.link.under_way(now_s), self.budget_s
        if exchange is not None and budget_s and self._too_long(exchange, budget_s):
            self._declined[fragment] = ticket
            return "an earlier contribution is still under way"
        again = self._declined.get(fragment) == ticket
        if not again:
            self._since_answer += 1
        if again or self._is_due(fragment):
            self._declined.pop(fragment, None)
            self._since_answer = 0
            self._answers[fragment] += 1
            return None
        self._declined[fragment] = ticket
        return f"one of {self.choice.every} pulls is answered, to spare the link"

    def _is_due(self, fragment: int) -> bool:
        """Whether a pull is the n-th one, of a fragment that was not answered for more than others.

        Where P and n have a common divisor, counting alone would always leave out the same
        fragments. Once an exchange had room to spare, every pull is answered until that is certain.
        """
        every = self.choice.every
        if every == 1 or self._roomy:
            return True
        fair = self._answers[fragment] == min(self._answers)
        return self._since_answer >= (every if fair else 2 * every)

    def link_changed(self) -> None:
        self.link.link_changed()
        self._roomy, self._slowest = 0, inf
        self._declined.clear()
