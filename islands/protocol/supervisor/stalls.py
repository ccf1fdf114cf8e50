"""A launched process that is stalled is killed, after a time limit that doubles with each kill.

No fixed limit is right for every model and machine. A process that needs longer than its limit
would be killed at the same place at every start; a compilation begins anew each time, since the
cache keeps only finished ones. So each kill of a process at a place doubles its limit there, and
the crash loop ends with the first start that has enough time. The doubled limits are kept for the
life of the run: otherwise a step that is long once an hour or once a day, such as one with an
evaluation, would be killed each time. No limit grows beyond `LONGEST_S`, so that a device that
hangs now and then is always found.

Processor time is no sign of life: a process that waits for a device or a peer for ever may keep
its processor busy while it waits.
"""

from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation
from islands.protocol.supervisor.eviction import StallPoint, Standstill

GROWTH = 2.0

LONGEST_S = 6 * 3600.0
"""No limit is doubled beyond this; a limit that the settings put higher stays as it is."""


@dataclass(slots=True)
class Stalls:
    """How often one process was killed for being stalled, by place.

    `killed` is the incarnation that was killed last.
    """

    kills: dict[StallPoint, int] = field(default_factory=dict)
    killed: Incarnation | None = None

    def limit_s(self, found: Standstill) -> float:
        """The longest time that this process may spend where it is now."""
        grown_s = found.limit_s * GROWTH ** self.kills.get(found.place, 0)
        return max(found.limit_s, min(grown_s, LONGEST_S))

    def kill_because(self, found: Standstill, incarnation: Incarnation) -> str | None:
        """The reason to kill an incarnation now, given once per incarnation; None to spare it."""
        if incarnation == self.killed or found.waited_s < self.limit_s(found):
            return None
        self.killed = incarnation
        if self.limit_s(found) < LONGEST_S:
            self.kills[found.place] = self.kills.get(found.place, 0) + 1
        return (
            f"stalled in {found.place.value} for {found.waited_s:,.0f} s; "
            f"the next start has {self.limit_s(found):,.0f} s there"
        )
