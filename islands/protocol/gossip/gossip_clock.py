"""The clock of the learning rate where learners gossip: steps, as the fastest one counts them."""

from dataclasses import dataclass


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
