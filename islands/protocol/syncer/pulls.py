"""The pulls to one learner: which of them are open, and the precision that each one names.

Each pull ends exactly once (protocol §3.3): `Pulls.end` ends one, `Pulls.void` all of a link. While
one is open it is sent again, ever more rarely (`sweep.py`); a learner that does not know it any
more declines it. So what a fault of either side loses ends a little later, and never leaves a
learner unasked. A learner is **silent** if nothing at all was heard over its link since a pull that
is overdue was sent: then it has one pull at a time, and no new round waits for it. The first thing
that is heard redeems it.

With `precision: adaptive`, each pull names the precision of its answer, by the learner's own link.
An exchange is to end within τ·ξ_step seconds, behind which it is hidden, and before the next
contribution leaves, H/P·ξ_step later. Where it took L seconds before a contribution left, its bytes
may take

    budget = min(max(τ·ξ_step − L, τ·ξ_step / 2), H/P·ξ_step)

since no precision makes a latency shorter. ξ_step is that of the pace, and with
`overlap_steps: auto` τ is its upper limit. A learner says when a contribution leaves
(`ContributionOffered`), on the lane that never waits for bulk, so both are later by the same
latency. As contributions leave one after another, the bytes of the i-th took
arrivedᵢ − max(offeredᵢ, arrivedᵢ₋₁).

Coarser at once, when bytes took too long: to the finest precision that fits their bandwidth. Finer
when several exchanges in a row had so much room that a finer one would take half of the budget, by
at most four times the bytes; twice as many exchanges are asked for whenever a finer one did not
last. A learner begins with the coarsest one.

Reference: a codec for each learner by its measured link, arXiv 2601.02360.
Deviation (ours): the order of choices and the hysteresis.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from islands.protocol.settings.choices import Precision
from islands.protocol.settings.run import RunSettings


@dataclass(slots=True)
class Pull:
    """A pull without an end: its fragment, when it was sent first and last, and how often.

    `offered_s` is when its answer left, if that is known, and `size_bytes` is the answer's length.
    """

    fragment: int
    first_s: float
    at_s: float
    times: int = 1
    offered_s: float | None = None
    size_bytes: int = 0


@dataclass(slots=True)
class Pulls:
    """The open pulls of one learner over its present link, by round."""

    open: dict[int, Pull] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.open)

    def send(self, round_: int, fragment: int, now_s: float) -> None:
        pull = self.open.get(round_)
        if pull is None:
            self.open[round_] = Pull(fragment, now_s, now_s)
        else:
            pull.at_s, pull.times = now_s, pull.times + 1

    def end(self, round_: int) -> Pull | None:
        """End a pull; return it, or None if it had ended before."""
        return self.open.pop(round_, None)

    def overtaken(self, round_: int, fragment: int) -> list[int]:
        """Return the rounds of open pulls of a fragment before the one that has ended."""
        before = [each for each in self.open if each < round_]
        return [each for each in before if self.open[each].fragment == fragment]

    def void(self) -> None:
        self.open.clear()

    @property
    def oldest_s(self) -> float | None:
        """When the pull that has been open for longest was first sent; None if none is open."""
        return min((pull.first_s for pull in self.open.values()), default=None)


FINEST_FIRST = tuple(precision for precision in Precision if precision.adaptive_level)

CONFIRMED = 3
"""Exchanges with room to spare, in a row, before a finer precision; at first, and at most:"""

CONFIRMED_MOST = 48
LASTED = 16
"""A finer precision that lasted for so many exchanges was right, whatever comes then."""

ROOM = 0.5
"""Fraction of the budget that a finer precision may take by the exchanges before it."""

FINER_AT_ONCE = 4
"""Most times the bytes of a finer precision may exceed those of the one before it."""

TRANSFER_LEAST_S = 1e-6
"""Shortest time that bytes may have taken."""


@dataclass(frozen=True, slots=True)
class Level:
    """A precision, and the bytes of the largest fragment in it."""

    precision: Precision
    size_bytes: int


EXACT = (Level(Precision.FLOAT32, 1),)
"""Where nothing is adaptive."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The bytes of a contribution, the seconds that they took, and what they might have taken."""

    size_bytes: int
    seconds: float
    budget_s: float

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes / max(self.seconds, TRANSFER_LEAST_S)

    @property
    def room_bytes(self) -> float:
        return self.bytes_per_s * self.budget_s


def levels_of(
    settings: RunSettings, largest_bytes: Callable[[Precision], int]
) -> tuple[Level, ...]:
    """Return the precisions that may be named, the finest first; each saves bytes."""
    levels: list[Level] = []
    for precision in FINEST_FIRST[: FINEST_FIRST.index(settings.coarsest_adaptive) + 1]:
        largest = largest_bytes(precision)
        if not levels or largest < levels[-1].size_bytes:
            levels.append(Level(precision, largest))
    return tuple(levels)


def budget_s(settings: RunSettings, fragments: int, *, step_s: float, before_s: float) -> float:
    """Return the seconds that bytes which left after `before_s` may take; 0 if unknown."""
    window_s = settings.overlap_steps_max * step_s
    within_s = max(window_s - before_s, window_s / 2)
    return min(within_s, step_s * settings.round_interval_steps(fragments))


@dataclass(slots=True)
class AdaptivePrecision:
    """The precision named to one learner: `levels[level]`.

    `arrived_s` is when its last contribution came. `roomy` counts the exchanges with room to spare,
    of which `least_bytes` is the least room, and `confirmed` is how many are asked for.
    `since_finer` counts the exchanges since a finer precision was named, if that was the last
    change.
    """

    levels: Sequence[Level]
    level: int
    arrived_s: float = -inf
    roomy: int = 0
    least_bytes: float = inf
    confirmed: int = CONFIRMED
    since_finer: int | None = None

    @property
    def precision(self) -> Precision:
        return self.levels[self.level].precision

    def link_changed(self) -> None:
        self.roomy, self.least_bytes, self.arrived_s = 0, inf, -inf

    def began_s(self, offered_s: float) -> float:
        return max(offered_s, self.arrived_s)

    def arrived(self, transfer: Transfer, now_s: float) -> str | None:
        """Judge a contribution; return why another precision is named, if one is."""
        self.arrived_s = now_s
        if not transfer.budget_s:
            return None
        if self.since_finer is not None:
            self.since_finer += 1
            if self.since_finer >= LASTED:
                self.since_finer, self.confirmed = None, CONFIRMED
        if self.levels[self.level].size_bytes > transfer.room_bytes:
            return self._coarser(transfer.room_bytes)
        if self._fitting(ROOM * transfer.room_bytes) >= self.level:
            self.roomy, self.least_bytes = 0, inf
            return None
        self.roomy += 1
        self.least_bytes = min(self.least_bytes, transfer.room_bytes)
        return self._finer() if self.roomy >= self.confirmed else None

    def _fitting(self, room_bytes: float) -> int:
        sizes = enumerate(level.size_bytes for level in self.levels)
        fitting = (index for index, size in sizes if size <= room_bytes)
        return next(fitting, len(self.levels) - 1)

    def _coarser(self, room_bytes: float) -> str | None:
        level = self._fitting(room_bytes)
        if level <= self.level:
            return None
        if self.since_finer is not None:
            self.confirmed = min(2 * self.confirmed, CONFIRMED_MOST)
        self.since_finer = None
        self._name(level)
        return "an exchange took too long"

    def _finer(self) -> str:
        reason = f"{self.roomy} exchanges in a row had room to spare"
        level = self._fitting(ROOM * self.least_bytes)
        most_bytes = FINER_AT_ONCE * self.levels[self.level].size_bytes
        while self.levels[level].size_bytes > most_bytes:
            level += 1
        self.since_finer = 0
        self._name(level)
        return reason

    def _name(self, level: int) -> None:
        self.level, self.roomy, self.least_bytes = level, 0, inf
