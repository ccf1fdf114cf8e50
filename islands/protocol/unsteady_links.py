"""How often one link was lost of late: what neither a heartbeat nor a merge shows by itself."""

from dataclasses import dataclass, field
from math import inf

WITHIN_S = 120.0
LOSSES_LEAST = 3
LOSSES_KEPT = 128
UNSTEADY = (
    "was lost {} times in two minutes, and dialled again each time: something on the way ends "
    "it, such as a balancer, a NAT or a VPN that forgets it, or a path that drops large packets"
)
"""What people are told of such a link; it stands behind the name of the link."""


@dataclass(slots=True)
class LostLinks:
    """The times of the newest losses of one link, and when people were told last."""

    at_s: list[float] = field(default_factory=list)
    reported_s: float = -inf

    def lost(self, now_s: float) -> int | None:
        """Count a loss; return how many there were in two minutes, if it is time to say that."""
        newest = [at_s for at_s in self.at_s if now_s - at_s < WITHIN_S]
        self.at_s = [*newest[1 - LOSSES_KEPT :], now_s]
        if len(self.at_s) < LOSSES_LEAST or now_s - self.reported_s < WITHIN_S:
            return None
        self.reported_s = now_s
        return len(self.at_s)
