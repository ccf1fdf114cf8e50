"""When the next round may open: the interval is set by compute, not by the network.

Each learner has a credit in steps. Reported steps add to it; opening a round takes H/P from
everybody. A round may open when the pace-setting learner (the upper median, the fastest or the
slowest of the ready ones) has a credit of at least H/P. Those that are ready and do not train, for
want of tokens or data, set the pace only while nobody trains: their credits stand still.

Credits are bounded on both sides. The upper bound keeps a learner that ran ahead while nobody
could open a round (a slow network, a restart) from paying for a burst afterwards; the lower bound
keeps a slow learner from falling ever further behind.

Deviation: protocol §3.1 bounds credits above by max(1, H/P), with one report per H/P steps. In the
event model the steps reported above the bound were lost, and the effective H came out up to 14 %
too long (H=24, P=1). Eight reports per interval, and a bound that is higher by one report, keep it
within 3 %.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from islands.protocol.identities import LearnerName
from islands.protocol.settings.run import REPORTS_PER_ROUND, PaceBy

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
        """Take the price of an opened round from every learner's credit, and set the next one's.

        Args:
            next_interval_steps: H/P of the next round.
        """
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
