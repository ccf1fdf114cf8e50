"""When a launched process that stands still is killed: a limit that grows with each kill.

No fixed limit is right for every model and machine. Whatever takes longer would be killed at the
same place at every start, and a compilation begins anew each time: the cache keeps only those that
were finished. So each kill of a process at a place doubles its limit there, and the circle ends
with the first start that has time enough. What was learned is kept for the life of the run: a step
that is long once in an hour, or in a day, such as one with an evaluation, would else be killed each
time. Beyond `LONGEST_S` no limit grows, so that a device that hangs now and then is always found.

A process that waits for a device or a peer for ever may well burn its processor while it does, so
that processor time is no sign of life.
"""

from dataclasses import dataclass, field

from islands.identities import Incarnation
from islands.supervisor.eviction import StallPoint, Standstill

GROWTH = 2.0

LONGEST_S = 6 * 3600.0
"""A process that needs longer somewhere has a limit of its own there from the start."""


@dataclass(slots=True)
class Stalls:
    """Kills of one process for standing still, by place.

    `killed` is the incarnation that was killed last.
    """

    kills: dict[StallPoint, int] = field(default_factory=dict)
    killed: Incarnation | None = None

    def limit_s(self, found: Standstill) -> float:
        """How long this process may be where it is."""
        grown_s = found.limit_s * GROWTH ** self.kills.get(found.place, 0)
        return max(found.limit_s, min(grown_s, LONGEST_S))

    def kill_because(self, found: Standstill, incarnation: Incarnation) -> str | None:
        """Why an incarnation is to be killed now, told once; None if it is not."""
        if incarnation == self.killed or found.waited_s < self.limit_s(found):
            return None
        self.killed = incarnation
        if self.limit_s(found) < LONGEST_S:
            self.kills[found.place] = self.kills.get(found.place, 0) + 1
        return (
            f"stalled in {found.place.value} for {found.waited_s:,.0f} s; "
            f"the next start has {self.limit_s(found):,.0f} s there"
        )
