"""The clock of the learning rate: a learner's estimate of the fleet's clock between two updates.

The fleet's clock counts H/P steps per opened round, so it is the pace-setting learner's step count;
`RunSettings.learning_rate_at` derives the learning rate from it. Every update carries it. Between
two of them it goes on with the learner's own steps, up to the next value that is due:

    clock = carried + min(own steps since it was carried, H/P)

So it is off by at most H/P or by what lies between two values, however much faster or slower than
the fleet a learner steps. It may go back at a value, and stands while the syncer is away.

Of one syncer's values the highest counts, for updates may overtake each other. A new syncer's
values count from its first one on, even if its journal lags behind the last syncer's.
"""

from dataclasses import dataclass

from islands.protocol.settings.run import RunSettings


@dataclass(slots=True)
class FleetClock:
    """The fleet's clock as one learner estimates it.

    `due_steps` is H/P. `value` is the latest of the syncer of `epoch`, None before the first, and
    `at_steps` are the own steps at which it was adopted.
    """

    due_steps: float
    epoch: int = 0
    value: float | None = None
    at_steps: int = 0

    def begin_anew(self) -> None:
        """Follow the next value, whatever its epoch, as that of a new syncer."""
        self.epoch = -1

    def carried(self, clock: float, *, epoch: int, steps: int) -> None:
        """Correct the clock by the value in an update that was adopted at a boundary."""
        old = self.value is not None and clock <= self.value
        if epoch < self.epoch or (epoch == self.epoch and old):
            return
        self.epoch, self.value, self.at_steps = epoch, clock, steps

    def at(self, steps: int) -> float:
        """The estimate of the fleet's clock after so many own steps of this process."""
        if self.value is None:
            return float(steps)
        return self.value + min(steps - self.at_steps, self.due_steps)


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

    def at(self, steps: int) -> float:
        """The clock after so many own steps of this process."""
        return steps + self.ahead


def clock_of(settings: RunSettings, fragments: int) -> FleetClock | GossipClock:
    """Return the clock by which a learner of a run of P `fragments` derives its learning rate."""
    due_steps = settings.round_interval_steps(fragments)
    return GossipClock() if settings.gossip.on else FleetClock(due_steps)
