"""When a launched process that stands still is killed: a limit that grows with each kill.

No fixed limit is right for every model and machine. Whatever takes longer would be killed at the
same place at every start, and a compilation begins anew each time: the cache keeps only those that
were finished. So each kill of a process at a place doubles its limit there, and the circle ends
with the first start that has time enough. What was learned is forgotten `HEALTHY_S` after the
process began to step again.

A process that waits for a device or a peer for ever may well burn its processor while it does, so
that processor time is no sign of life.
"""

from dataclasses import dataclass, field

from islands.identities import Incarnation
from islands.supervisor.liveness import Place, Standstill
from islands.supervisor.restarts import HEALTHY_S

GROWTH = 2.0


@dataclass(slots=True)
class Stalls:
    """Kills of one process for standing still, by place.

    `killed` is the incarnation that was killed last, `stepping_s` when one stepped after it.
    """

    kills: dict[Place, int] = field(default_factory=dict)
    killed: Incarnation | None = None
    stepping_s: float | None = None

    def limit_s(self, found: Standstill) -> float:
        """How long this process may be where it is."""
        return found.limit_s * GROWTH ** self.kills.get(found.place, 0)

    def kill_because(self, found: Standstill, incarnation: Incarnation) -> str | None:
        """Why an incarnation is to be killed now, told once; None if it is not."""
        if incarnation == self.killed or found.waited_s < self.limit_s(found):
            return None
        self.killed, self.stepping_s = incarnation, None
        self.kills[found.place] = self.kills.get(found.place, 0) + 1
        return (
            f"stalled in {found.place.value} for {found.waited_s:,.0f} s; "
            f"the next start has {self.limit_s(found):,.0f} s there"
        )

    def stepped(self, now_s: float, patience: float) -> None:
        """A step was heard: after an hour of them, what went before is forgotten."""
        if self.stepping_s is None:
            self.stepping_s = now_s
        elif now_s - self.stepping_s >= HEALTHY_S * patience:
            self.kills.clear()
