"""Timing of rounds (protocol §3.1, §3.4): the pace at which they open, patience, and grace.

The upper bound of credits keeps a learner that ran ahead while nobody could open a round from
paying for a burst afterwards; the lower bound keeps a slow learner from falling ever further
behind. With a bound of max(1, H/P), and one report per H/P steps, the effective H comes out up to
14 % too long [M: event model, H=24, P=1]. Eight reports per interval, and a bound that is higher by
one report, keep it within 3 %.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from statistics import median_low

from islands.protocol.identities import LearnerName
from islands.protocol.running_statistics import MovingAverage
from islands.protocol.settings.choices import PaceBy
from islands.protocol.settings.run import REPORTS_PER_ROUND


@dataclass(slots=True)
class Durations:
    """The three measured times of Eq. 3, in seconds."""

    step_s: MovingAverage
    quorum_s: MovingAverage
    sync_s: MovingAverage

    @classmethod
    def unknown(cls) -> "Durations":
        return cls(MovingAverage(), MovingAverage(), MovingAverage())


def overlap_needed(durations: Durations) -> int | None:
    """Return the τ that hides an exchange; None while its times are unknown."""
    step_s, quorum_s = durations.step_s.value, durations.quorum_s.value
    sync_s = durations.sync_s.value
    if not step_s or quorum_s is None or sync_s is None:
        return None
    return ceil((quorum_s + sync_s) / step_s) + 1


def grace_s(durations: Durations, *, overlap_steps: int, safety: float) -> float:
    """Return the seconds to wait after the K-th arrival (protocol §3.4)."""
    step_s = durations.step_s.value
    quorum_s = durations.quorum_s.value
    sync_s = durations.sync_s.value
    if step_s is None or quorum_s is None or sync_s is None:
        return 0.0
    hidden_s = max(0.0, overlap_steps * step_s - quorum_s - sync_s)
    return min(step_s, safety * hidden_s)


NEAR_SHARE = 0.5
NEAR_TIMES = 2
WITHIN_TIMES = 4
"""The factors of `patience`, in the order of protocol §3.4."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Where K is `auto`: whose usual answers are near enough to await, and for how long, in s."""

    near_s: float = inf
    within_s: float = inf

    def awaits(self, usual_s: float | None) -> bool:
        return usual_s is None or usual_s <= self.near_s


def patience(usual_s: Sequence[float | None], interval_s: float) -> Patience:
    """Return whom a round with K = `auto` waits for, and for how long (protocol §3.4).

    `usual_s` are the usual times of answers, None of a learner that has not answered yet;
    `interval_s` is the duration of H steps, 0 if it is unknown.
    """
    known = [each for each in usual_s if each is not None]
    usual = median_low(known) if known else 0.0
    within_s = max(interval_s, WITHIN_TIMES * usual)
    return Patience(max(NEAR_SHARE * interval_s, NEAR_TIMES * usual), within_s or inf)


CREDIT_FLOOR_STEPS = -1.0

ROUNDING_STEPS = 1e-6
"""By how much sums of H/P may be off, which a round need not wait for."""

Rank = tuple[bool, float, LearnerName]
"""Ranks sort who trains first, then the largest credit, and equal credits by name."""


@dataclass(slots=True)
class Pace:
    """Credits in steps, and the ready learners' ranks, by name in `ranked`, sorted in `ranking`.

    Learners that wait for merges never run further ahead than `ahead_steps`.
    """

    by: PaceBy
    round_interval_steps: float
    ahead_steps: float = 0.0
    credits: dict[LearnerName, float] = field(default_factory=dict)
    ranked: dict[LearnerName, Rank] = field(default_factory=dict)
    ranking: list[Rank] = field(default_factory=list)

    @property
    def cap_steps(self) -> float:
        """Largest credit a learner can hold: a round, and one report on top of it."""
        interval = self.round_interval_steps
        one_round = interval * (1 + 1 / REPORTS_PER_ROUND) if interval > 1 else 1.0
        return one_round + self.ahead_steps

    def progressed(self, name: LearnerName, steps: int) -> None:
        self.credits[name] = min(self.cap_steps, self.credits.get(name, 0.0) + steps)
        self._rerank(name)

    def forget(self, name: LearnerName) -> None:
        self.credits.pop(name, None)
        self._rerank(name)

    def enter(self, name: LearnerName, *, trains: bool = True) -> None:
        """Rank a ready learner, behind all others if it does not train."""
        rank = self._rank(name, trains=trains)
        if self.ranked.get(name) != rank:
            self.leave(name)
            self.ranked[name] = rank
            insort(self.ranking, rank)

    def leave(self, name: LearnerName) -> None:
        rank = self.ranked.pop(name, None)
        if rank is not None:
            del self.ranking[bisect_left(self.ranking, rank)]

    def set_interval(self, interval_steps: float) -> None:
        self.round_interval_steps = interval_steps

    def setter(self) -> LearnerName | None:
        """Return the learner that sets the pace; None if none is ready."""
        if not self.ranking:
            return None
        count = bisect_left(self.ranking, (True,)) or len(self.ranking)  # who trains, or all
        match self.by:
            case PaceBy.FASTEST:
                index = 0
            case PaceBy.SLOWEST:
                index = count - 1
            case PaceBy.MEDIAN:
                index = (count - 1) // 2
        return self.ranking[index][2]

    def ready(self) -> bool:
        setter = self.setter()
        if setter is None:
            return False
        return self.credits.get(setter, 0.0) >= self.round_interval_steps - ROUNDING_STEPS

    def opened(self, next_interval_steps: float) -> None:
        """Take the price of an opened round from every learner's credit, and set the next one's."""
        for name in self.credits:
            paid = self.credits[name] - self.round_interval_steps
            self.credits[name] = max(CREDIT_FLOOR_STEPS, paid)
        self.round_interval_steps = next_interval_steps
        self.ranked = {
            name: self._rank(name, trains=not resting)
            for name, (resting, _, _) in self.ranked.items()
        }
        self.ranking = sorted(self.ranked.values())

    def _rank(self, name: LearnerName, *, trains: bool) -> Rank:
        return not trains, -self.credits.get(name, 0.0), name

    def _rerank(self, name: LearnerName) -> None:
        if name in self.ranked:
            self.enter(name, trains=not self.ranked[name][0])
