"""What time it is in the fleet, between two values that a learner is told.

The fleet's clock counts H/P steps per opened round, so it is the pace-setting learner's steps
(`schedule.py` makes a learning rate of it). Every update carries it. A learner's own steps are
another clock: five times faster, ten times slower. So

    clock = carried + r · (own steps since it was carried),
    r = fleet steps per own step, over the last interval of H fleet steps.

Until a second value was carried, r is 1, and the clock goes no further than H beyond the first one:
who is faster than the fleet cannot know it yet. Afterwards it has no bound: while the syncer is
away, the rate goes on as it went before, however long that is, and meets the fleet's again at the
next update.

Of one syncer the highest value counts, for updates may overtake each other. A new syncer's counts
from its first one on, also where its journal lags behind the last one's.
"""

from collections import deque
from dataclasses import dataclass, field

MARKS_KEPT = 1024


@dataclass(slots=True)
class FleetClock:
    """The fleet's clock as one learner follows it.

    `interval_steps` is H. `marks` are (own steps, fleet's clock) of values carried by the syncer of
    `epoch`, the newest last.
    """

    interval_steps: int
    epoch: int = 0
    ratio: float | None = None
    marks: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MARKS_KEPT))

    def stood_still(self) -> None:
        """No step was possible: what the fleet does meanwhile tells nothing of the ratio."""
        while len(self.marks) > 1:
            self.marks.popleft()

    def carried(self, clock: float, *, epoch: int, steps: int) -> None:
        """An update carried the fleet's clock, at a boundary after so many own steps.

        Args:
            clock: of the fleet, when the update was sent.
            epoch: of the syncer that sent it.
            steps: of this process.
        """
        if epoch < self.epoch or (epoch == self.epoch and self.marks and clock <= self._newest):
            return
        if epoch > self.epoch:
            self.epoch = epoch
            self.marks.clear()
        if self.marks and self.marks[-1][0] == steps:
            self.marks.pop()
        self.marks.append((steps, clock))
        while clock - self.marks[min(1, len(self.marks) - 1)][1] >= self.interval_steps:
            self.marks.popleft()
        (first_steps, first), (last_steps, last) = self.marks[0], self.marks[-1]
        if last_steps > first_steps:
            self.ratio = (last - first) / (last_steps - first_steps)

    @property
    def _newest(self) -> float:
        return self.marks[-1][1]

    def at(self, steps: int) -> float:
        """The fleet's clock after so many own steps."""
        if not self.marks:
            return float(steps)
        since = steps - self.marks[-1][0]
        ahead = min(since, self.interval_steps) if self.ratio is None else self.ratio * since
        return self._newest + ahead
