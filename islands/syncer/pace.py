"""When the next round may open: the interval is set by compute, not by the network.

Each eligible learner has a credit in steps. Reported steps add to it; opening a round takes H/P
from everybody. A round may open when the pace-setting learner (the upper median, the fastest or
the slowest) has a credit of at least H/P.

Credits are bounded on both sides. The upper bound keeps a learner that ran ahead while nobody
could open a round (a slow network, a restart) from paying for a burst afterwards; the lower bound
keeps a slow learner from falling ever further behind.

Deviation: SPEC §3.1 bounds credits above by max(1, H/P), with one report per H/P steps. In the
event model the steps reported above the bound were lost, and the effective H came out up to 14 %
too long (H=24, P=1). Eight reports per interval, and a bound that is higher by one report, keep it
within 3 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from islands.config import REPORTS_PER_ROUND, PaceBy
from islands.identities import LearnerName

CREDIT_FLOOR_STEPS = -1.0


@dataclass(slots=True)
class Pace:
    """Credits of all learners, in steps."""

    by: PaceBy
    round_interval_steps: float
    credits: dict[LearnerName, float] = field(default_factory=dict)

    @property
    def cap_steps(self) -> float:
        """Largest credit a learner can hold: a round, and one report on top of it."""
        interval = self.round_interval_steps
        return interval * (1 + 1 / REPORTS_PER_ROUND) if interval > 1 else 1.0

    def progressed(self, name: LearnerName, steps: int) -> None:
        """A learner reported so many more steps."""
        self.credits[name] = min(self.cap_steps, self.credits.get(name, 0.0) + steps)

    def forget(self, name: LearnerName) -> None:
        """An incarnation ended."""
        self.credits.pop(name, None)

    def setter(self, eligible: Sequence[LearnerName]) -> LearnerName | None:
        """The learner that sets the pace among the eligible (sorted by name); None if none is."""
        if not eligible:
            return None
        ranked = sorted(eligible, key=lambda name: (-self.credits.get(name, 0.0), name))
        match self.by:
            case PaceBy.FASTEST:
                return ranked[0]
            case PaceBy.SLOWEST:
                return ranked[-1]
            case PaceBy.MEDIAN:
                return ranked[(len(ranked) - 1) // 2]

    def ready(self, eligible: Sequence[LearnerName]) -> bool:
        """Whether the pace-setting learner has stepped enough for one more round."""
        setter = self.setter(eligible)
        if setter is None:
            return False
        return self.credits.get(setter, 0.0) >= self.round_interval_steps

    def opened(self) -> None:
        """A round opened: everybody pays for it."""
        for name in self.credits:
            paid = self.credits[name] - self.round_interval_steps
            self.credits[name] = max(CREDIT_FLOOR_STEPS, paid)
