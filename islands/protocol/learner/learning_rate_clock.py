"""The clock of the learning rate: a learner's estimate of the fleet's clock between two updates.

The fleet's clock counts H/P steps per opened round, so it is the pace-setting learner's step count;
with a budget of tokens it is the part of that which is used up (`RunSettings.clock_after`).
`RunSettings.learning_rate_at` derives the learning rate from it. Every update carries it, and
between two of them own steps count, up to the next value that is due:

    clock = carried + min(own steps since it was carried, H/P)

So while the syncer is away the learning rate stands, and steps go on.

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
        old = self.value is not None and clock <= self.value
        if epoch < self.epoch or (epoch == self.epoch and old):
            return
        self.epoch, self.value, self.at_steps = epoch, clock, steps

    def at(self, steps: int) -> float:
        if self.value is None:
            return float(steps)
        return self.value + min(steps - self.at_steps, self.due_steps)


@dataclass(slots=True)
class GossipClock:
    """Own steps, moved on by every round that others came to first.

    So a slow learner, or one that joined late, has the learning rate of the others.
    """

    ahead: float = 0.0

    def carried(self, clock: float, *, epoch: int, steps: int) -> None:
        self.ahead = max(self.ahead, clock - steps)

    def begin_anew(self) -> None:
        """Do nothing: no value of the clock is older than another."""

    def at(self, steps: int) -> float:
        return steps + self.ahead


def clock_of(settings: RunSettings, fragments: int) -> FleetClock | GossipClock:
    """Return the clock by which a learner of a run of P `fragments` derives its learning rate."""
    due_steps = settings.round_interval_steps(fragments)
    return GossipClock() if settings.gossip.on else FleetClock(due_steps)
