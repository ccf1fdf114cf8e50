"""How often a process that ended is started again: a restart intensity that escalates.

A process may be started again five times within a minute; the sixth time the supervisor gives up
on it and says why. The run goes on with the others. Delays grow with every restart in the window.

Reference: the restart intensity of Erlang/OTP supervisors.
"""

from dataclasses import dataclass, field

RESTARTS_MAX = 5
WINDOW_S = 60.0
FIRST_DELAY_S = 0.2


@dataclass(slots=True)
class Restarts:
    """Restarts of one process, as times in seconds."""

    times_s: list[float] = field(default_factory=list)
    given_up: bool = False

    def next_delay_s(self, now_s: float, patience: float) -> float | None:
        """Seconds to wait before starting it again; None to give up."""
        recent = [at_s for at_s in self.times_s if now_s - at_s < WINDOW_S * patience]
        if self.given_up or len(recent) >= RESTARTS_MAX:
            self.given_up = True
            return None
        self.times_s = [*recent, now_s]
        return FIRST_DELAY_S * patience * float(2 ** len(recent))
