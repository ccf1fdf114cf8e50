"""What time it is in the fleet, between two values that a learner is told.

The fleet's clock counts H/P steps per opened round, so it is the pace-setting learner's steps
(`settings/learning_rate.py` makes a rate of it). Every update carries it. A learner's own steps are
another clock: five times faster, ten times slower. So

    clock = carried + r · (own steps since it was carried),
    r = fleet steps per own step: the median of the last intervals of H fleet steps.

A step of an hour (a compilation, a suspended process) makes an interval of thousands of fleet steps
in one own step: the median, of two the lower one, does not see it. The first interval, which may be
that one, counts as at most 1.

Until a second interval has begun, the clock goes no further than H beyond the last value: who is
faster than the fleet cannot know it yet. Afterwards it goes on while the syncer is away, however
long that is, and meets the fleet's again at the next update. But no value for more than H fleet
steps means that r is wrong or the syncer away: from there on r counts as at most 1.

Of one syncer the highest value counts, for updates may overtake each other. A new syncer's counts
from its first one on, also where its journal lags behind the last one's.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median_low

RATIOS_KEPT = 5
"""Two intervals around one long step are outvoted; a new pace is followed after three."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A value that the syncer carried, and the own steps at which it came."""

    steps: int
    clock: float


@dataclass(slots=True)
class FleetClock:
    """The fleet's clock as one learner follows it.

    `interval_steps` is H. `first` and `newest` are values carried by the syncer of `epoch`: where
    the present interval began, and the last one. `ratios` are those of the intervals before it.
    `sure` says that `ratio` is that of two intervals or more.
    """

    interval_steps: int
    epoch: int = 0
    ratio: float = 1.0
    sure: bool = False
    first: Mark | None = None
    newest: Mark | None = None
    stood: bool = False
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=RATIOS_KEPT))

    def stood_still(self) -> None:
        """No step was possible: what the fleet does meanwhile tells nothing of the ratio."""
        self.stood = True

    def carried(self, clock: float, *, epoch: int, steps: int) -> None:
        """An update carried the fleet's clock, at a boundary after so many own steps.

        Args:
            clock: of the fleet, when the update was sent.
            epoch: of the syncer that sent it.
            steps: of this process.
        """
        newest = self.newest
        if epoch < self.epoch or (epoch == self.epoch and newest and clock <= newest.clock):
            return
        if newest is not None and steps > newest.steps:
            self._end_interval(newest)  # later values of one boundary belong to the same interval
        self.newest = Mark(steps, clock)
        if self.first is None or self.stood or epoch > self.epoch:
            self.first = self.newest
        self.epoch = epoch
        self.stood = False
        if steps > self.first.steps:
            known = [*self.ratios, _ratio(self.first, self.newest)]
            self.sure = len(known) > 1
            self.ratio = median_low(known if self.sure else [1.0, *known])

    def _end_interval(self, newest: Mark) -> None:
        """Keep the ratio of an interval that is long enough, and begin the next one."""
        first = self.first
        assert first is not None, "who has a newest value has a first one"
        if newest.clock - first.clock >= self.interval_steps and newest.steps > first.steps:
            self.ratios.append(_ratio(first, newest))
            self.first = newest

    def at(self, steps: int) -> float:
        """The fleet's clock after so many own steps."""
        if self.newest is None:
            return float(steps)
        since = steps - self.newest.steps
        further = since - self.interval_steps / max(self.ratio, 1.0) if self.sure else 0.0
        return self.newest.clock + min(self.ratio * since, self.interval_steps + further)


def _ratio(first: Mark, last: Mark) -> float:
    """Fleet steps per own step between two values."""
    return (last.clock - first.clock) / (last.steps - first.steps)
