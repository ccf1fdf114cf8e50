"""When the next round may open: the interval is set by compute, not by the network.

Each learner has a credit in steps. Reported steps add to it; opening a round takes H/P from
everybody. A round may open when the pace-setting learner (the upper median, the fastest or the
slowest of those that are ready and train) has a credit of at least H/P.

Credits are bounded on both sides. The upper bound keeps a learner that ran ahead while nobody
could open a round (a slow network, a restart) from paying for a burst afterwards; the lower bound
keeps a slow learner from falling ever further behind.

Deviation: SPEC §3.1 bounds credits above by max(1, H/P), with one report per H/P steps. In the
event model the steps reported above the bound were lost, and the effective H came out up to 14 %
too long (H=24, P=1). Eight reports per interval, and a bound that is higher by one report, keep it
within 3 %.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from islands.identities import LearnerName
from islands.settings.run import REPORTS_PER_ROUND, PaceBy

CREDIT_FLOOR_STEPS = -1.0
ROUNDING_STEPS = 1e-6
"""By how much sums of H/P may be off, which a round need not wait for."""

Rank = tuple[float, LearnerName]
"""Ranks sort the largest credit first, and equal credits by name."""


@dataclass(slots=True)
class Pace:
    """Credits of all learners, in steps, and the ranking of those that may set the pace.

    The ranking is kept, so that a report costs the same among few learners and among many:
    `ranked` holds the rank of each, `ranking` the same ranks in their order. Learners that wait for
    merges count every step: they never run further ahead than `ahead_steps`.
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

    def enter(self, name: LearnerName) -> None:
        """Rank a learner, so that it may set the pace (`eligibility.may_set_pace`)."""
        if name not in self.ranked:
            rank = self._rank(name)
            self.ranked[name] = rank
            insort(self.ranking, rank)

    def leave(self, name: LearnerName) -> None:
        """Remove a learner from the ranking, so that it does not set the pace."""
        rank = self.ranked.pop(name, None)
        if rank is not None:
            del self.ranking[bisect_left(self.ranking, rank)]

    def setter(self) -> LearnerName | None:
        """Return the learner that sets the pace among those ranked; None if none is."""
        if not self.ranking:
            return None
        match self.by:
            case PaceBy.FASTEST:
                place = 0
            case PaceBy.SLOWEST:
                place = -1
            case PaceBy.MEDIAN:
                place = (len(self.ranking) - 1) // 2
        return self.ranking[place][1]

    def ready(self) -> bool:
        """Return whether the pace-setting learner has stepped enough for one more round."""
        setter = self.setter()
        if setter is None:
            return False
        return self.credits.get(setter, 0.0) >= self.round_interval_steps - ROUNDING_STEPS

    def opened(self, next_interval_steps: float) -> None:
        """Take the price of an opened round from every learner's credit, and set the next one's.

        Args:
            next_interval_steps: H/P of the next round, which an interval by schedule changes.
        """
        for name in self.credits:
            paid = self.credits[name] - self.round_interval_steps
            self.credits[name] = max(CREDIT_FLOOR_STEPS, paid)
        self.round_interval_steps = next_interval_steps
        self.ranked = {name: self._rank(name) for name in self.ranked}
        self.ranking = sorted(self.ranked.values())

    def _rank(self, name: LearnerName) -> Rank:
        return -self.credits.get(name, 0.0), name

    def _rerank(self, name: LearnerName) -> None:
        if name in self.ranked:
            self.leave(name)
            self.enter(name)
