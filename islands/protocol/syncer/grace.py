"""Timing of rounds: the quorum, the grace after it, when the next one opens, how long a turn is.

Protocol §3.4 has the formulas of grace (Eq. 3 of Decoupled DiLoCo, arXiv 2604.21428; γ is ours) and
of whom a round awaits where K is `auto` (ours); §3.1 has the pace (ours).

A learner that has answered goes on stepping, and one that is left out brings its work to the next
round of the fragment: so a wait makes work later, and what is not waited for is later by a whole
interval. Who is not awaited is asked all the same, and merged if it answers within the grace.

Credits are bounded on both sides. The upper bound keeps a learner that ran ahead while nobody could
open a round (a slow network, a restart) from paying for a burst afterwards; the lower bound keeps a
slow learner from falling ever further behind. With a bound of max(1, H/P), and one report per H/P
steps, the effective H comes out up to 14 % too long [M: event model, H=24, P=1]. Eight reports per
interval, and a bound that is higher by one report, keep it within 3 %.
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
        """Return whether a round waits for a learner with this usual time of answers."""
        return usual_s is None or usual_s <= self.near_s


def patience(usual_s: Sequence[float | None], interval_s: float) -> Patience:
    """Return whom a round with K = `auto` waits for, and for how long (protocol §3.4).

    Args:
        usual_s: how long the answers of each learner that is asked usually take, in seconds; None
            for a learner that has not answered yet.
        interval_s: duration of H steps, in seconds; 0 if it is unknown.
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
    """Credits of all learners, in steps, and the ranking of those that are ready.

    The ranking is kept, so that a report costs the same among few learners and among many:
    `ranked` holds each ready learner's rank, `ranking` the same ranks in their order. Learners that
    wait for merges count every step: they never run further ahead than `ahead_steps`.
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
        """Add the steps that a learner reported to its credit."""
        self.credits[name] = min(self.cap_steps, self.credits.get(name, 0.0) + steps)
        self._rerank(name)

    def forget(self, name: LearnerName) -> None:
        """Forget the credit of an incarnation that ended."""
        self.credits.pop(name, None)
        self._rerank(name)

    def enter(self, name: LearnerName, *, trains: bool = True) -> None:
        """Rank a learner that is ready, behind all others if it does not train."""
        rank = self._rank(name, trains=trains)
        if self.ranked.get(name) != rank:
            self.leave(name)
            self.ranked[name] = rank
            insort(self.ranking, rank)

    def leave(self, name: LearnerName) -> None:
        """Remove a learner that is not ready any more, or not known, from the ranking."""
        rank = self.ranked.pop(name, None)
        if rank is not None:
            del self.ranking[bisect_left(self.ranking, rank)]

    def set_interval(self, interval_steps: float) -> None:
        self.round_interval_steps = interval_steps

    def setter(self) -> LearnerName | None:
        """Return the learner that sets the pace among the ready ones; None if none is ready."""
        if not self.ranking:
            return None
        count = bisect_left(self.ranking, (True,)) or len(self.ranking)  # who trains, or all
        match self.by:
            case PaceBy.FASTEST:
                place = 0
            case PaceBy.SLOWEST:
                place = count - 1
            case PaceBy.MEDIAN:
                place = (count - 1) // 2
        return self.ranking[place][2]

    def ready(self) -> bool:
        """Return whether the pace-setting learner has stepped enough for one more round."""
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
