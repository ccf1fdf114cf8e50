"""The clock of the learning rate: a learner's estimate of the fleet's clock between two updates.

The fleet's clock counts H/P steps per opened round, so it is the pace-setting learner's step count;
`RunSettings.learning_rate_at` derives the learning rate from it. Every update carries it. A
learner's own steps may run five times faster or ten times slower than that clock. So

    clock = carried + r · (own steps since it was carried),
    r = fleet steps per own step: the median of the last intervals of H fleet steps.

A step of an hour (a compilation, a suspended process) makes an interval of thousands of fleet steps
in one own step. The median (of two values the lower one) ignores such an outlier. The ratio of the
first interval, which may be the outlier, counts as at most 1.

Until a second interval has begun, the clock advances no further than H beyond the last value: a
learner that is faster than the fleet cannot know it yet. Afterwards the clock runs on while the
syncer is away, however long that is, and is corrected by the next update. But if no value came for
more than H fleet steps, r is wrong or the syncer is away: from there on r counts as at most 1.

Of one syncer's values the highest counts, for updates may overtake each other. A new syncer's
values count from its first one on, even if its journal lags behind the last syncer's.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median_low

from islands.protocol.settings.run import RunSettings

RATIOS_KEPT = 5
"""Two intervals around one long step are outvoted; a new pace prevails after three intervals."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A value of the fleet's clock in an update, and the own steps at which it was adopted."""

    steps: int
    clock: float


@dataclass(slots=True)
class FleetClock:
    """The fleet's clock as one learner estimates it.

    `interval_steps` is H. `first` and `newest` are values from the syncer of `epoch`: the one that
    began the present interval, and the latest. `ratios` are those of the intervals before it.
    `sure` says that `ratio` rests on two intervals or more.
    """

    interval_steps: int
    epoch: int = 0
    ratio: float = 1.0
    sure: bool = False
    first: Mark | None = None
    newest: Mark | None = None
    stood: bool = False
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=RATIOS_KEPT))

    def begin_anew(self) -> None:
        """Follow the next value, whatever its epoch, as that of a new syncer."""
        self.epoch = -1

    def stood_still(self) -> None:
        """Restart the interval at the next value: idle time says nothing about the ratio."""
        self.stood = True

    def carried(self, clock: float, *, epoch: int, steps: int) -> None:
        """Correct the clock by the value in an update that was adopted at a boundary."""
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
        """The estimate of the fleet's clock after so many own steps of this process."""
        if self.newest is None:
            return float(steps)
        since = steps - self.newest.steps
        further = since - self.interval_steps / max(self.ratio, 1.0) if self.sure else 0.0
        return self.newest.clock + min(self.ratio * since, self.interval_steps + further)


def _ratio(first: Mark, last: Mark) -> float:
    """Fleet steps per own step between two values."""
    return (last.clock - first.clock) / (last.steps - first.steps)


@dataclass(slots=True)
class GossipClock:
    """Own steps, moved on by every round that others came to first.

    A round says how many steps led to it, so a slow learner, or one that joined late, has the rate
    of the others. Alone it goes on counting.
    """

    ahead: float = 0.0

    def carried(self, clock: float, *, epoch: int, steps: int) -> None:
        """Move on to a clock that another learner had, when this one had done so many steps."""
        self.ahead = max(self.ahead, clock - steps)

    def begin_anew(self) -> None:
        """Do nothing: no value of the clock is older than another."""

    def stood_still(self) -> None:
        """Do nothing: only steps and rounds count."""

    def at(self, steps: int) -> float:
        """The clock after so many own steps of this process."""
        return steps + self.ahead


def clock_of(settings: RunSettings) -> FleetClock | GossipClock:
    """Return the clock by which a learner of such a run derives its learning rate."""
    return GossipClock() if settings.gossip.on else FleetClock(settings.interval_steps)
