"""How often a process that ended is started again: a restart intensity that escalates.

A fault that passes should cost little, and one that stays should cost little too. One window cannot
do both: with five restarts a minute, a process that dies 13 s after each start is started for ever.
So restarts are counted in several windows at once:

========  ==========  =======================  ==================================================
window    restarts    delay grows by           what it catches
========  ==========  =======================  ==================================================
a minute  5           2 with each one in it    what fails at once: a wrong path, a missing module
an hour   20          1.5 with each one in it  what fails after a while: a leak, a poisoned shard
a day     100         not at all               what never stays up for long
========  ==========  =======================  ==================================================

The next restart waits for the longest of these delays, at most a minute. Where a window is full,
the supervisor gives up on the process and says why; the run goes on with the others. So it does
once a process has ended with the very same words `ALIKE_MAX` times in a row: the line of a task
that fails at the same record each time is for its author to mend. A process that stayed up for an
hour has recovered, and all that went before is forgotten.

Reference: the restart intensity of Erlang/OTP supervisors, which has one window.
"""

from dataclasses import dataclass, field

FIRST_DELAY_S = 0.2
DELAY_MAX_S = 60.0
HEALTHY_S = 3600.0
RESTARTS_MAX = 5
ALIKE_MAX = 6


@dataclass(frozen=True, slots=True)
class Window:
    """At most so many restarts within a span of time; each makes the next delay `growth` longer."""

    name: str
    span_s: float
    restarts_max: int
    growth: float


WINDOWS = (
    Window("a minute", 60.0, RESTARTS_MAX, 2.0),
    Window("an hour", 3600.0, 20, 1.5),
    Window("a day", 86400.0, 100, 1.0),
)


@dataclass(slots=True)
class Restarts:
    """Restarts of one process: `times_s` are when it was started again, delays included."""

    times_s: list[float] = field(default_factory=list)
    told: str = ""
    """Which limit it exceeded, as part of a sentence; empty if none."""
    words: str = ""
    alike: int = 0

    @property
    def given_up(self) -> bool:
        """Whether it ended too often; this is final."""
        return bool(self.told)

    def next_delay_s(self, now_s: float, patience: float, words: str = "") -> float | None:
        """Seconds to wait before starting it again; None to give up.

        Args:
            now_s: when it ended.
            patience: scales all durations, as it scales every timeout of the run.
            words: with which it ended; "" if it said nothing.
        """
        if self.given_up:
            return None
        if self.times_s and now_s - self.times_s[-1] >= HEALTHY_S * patience:
            self.times_s, self.alike = [], 0
        self.alike = self.alike + 1 if words and words == self.words else 1
        self.words = words
        if self.alike >= ALIKE_MAX:
            self.told = f"ended {self.alike} times in a row with the same words"
            return None
        delay_s = FIRST_DELAY_S
        for window in WINDOWS:
            count = sum(1 for at_s in self.times_s if now_s - at_s < window.span_s * patience)
            if count >= window.restarts_max:
                self.told = f"ended more than {window.restarts_max} times within {window.name}"
                return None
            delay_s = max(delay_s, FIRST_DELAY_S * window.growth**count)
        delay_s = min(delay_s, DELAY_MAX_S) * patience
        self._remember(now_s + delay_s)
        return delay_s

    def _remember(self, at_s: float) -> None:
        """Note a restart; no window counts more than the last of them needs."""
        self.times_s = [*self.times_s, at_s][-max(window.restarts_max for window in WINDOWS) :]
