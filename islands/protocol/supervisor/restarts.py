"""Restarts of a process that ended: a restart intensity that escalates to giving up.

A transient fault should cost little, and so should a permanent one. One window cannot do both:
with five restarts a minute, a process that dies 13 s after each start is restarted for ever.
So restarts are counted in several windows at once:

========  ==========  =======================  ==================================================
window    restarts    delay grows by           what it catches
========  ==========  =======================  ==================================================
a minute  5           2 with each one in it    what fails at once: a wrong path, a missing module
an hour   20          1.5 with each one in it  what fails after a while: a leak, a poisoned shard
a day     100         not at all               what never stays up for long
========  ==========  =======================  ==================================================

The next restart waits for the longest of these delays, at most a minute. When a window is full,
the supervisor gives up on the process and says why; the run goes on with the others. It also gives
up once a process has ended with the very same error message `ALIKE_MAX` times in a row: a task that
fails at the same record each time must be fixed by its author. A learner that never steps between
such ends is given up after `UNTRAINED_MAX`: its model does not fit, or its task fails from the
beginning, and each further start would only compile again. One that is killed each time before its
first step, without a word, is given up after `ALIKE_MAX`. A process that stayed up for an hour has
recovered, and its earlier restarts are forgotten.

Reference: the restart intensity of Erlang/OTP supervisors, which has one window.
"""

from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation

FIRST_DELAY_S = 0.2
DELAY_MAX_S = 60.0
HEALTHY_S = 3600.0
RESTARTS_MAX = 5
ALIKE_MAX = 6
UNTRAINED_MAX = 3


@dataclass(frozen=True, slots=True)
class Window:
    """At most `restarts_max` within `span_s`; each multiplies the next delay by `growth`."""

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
    """Restarts of one process; `times_s` are their times, with their delays included.

    `words` is the error message of its last end, and `alike` how many ends in a row had it.
    """

    times_s: list[float] = field(default_factory=list)
    told: str = ""
    """The limit that it exceeded, as part of a sentence; empty if none."""
    words: str = ""
    alike: int = 0
    untrained: int = 0
    """How many of these ends, the last ones in a row, came before the first step of their start."""
    incarnation: Incarnation | None = None
    """The incarnation under which it had been admitted when it ended last."""

    @property
    def given_up(self) -> bool:
        """Whether the process ended too often to be restarted; this is final."""
        return bool(self.told)

    def next_delay_s(
        self, now_s: float, patience: float, words: str = "", *, trained: bool = True
    ) -> float | None:
        """Seconds to wait before the next restart; None to give up.

        Args:
            now_s: the time at which the process ended.
            patience: factor on all durations, as on every timeout of the run.
            words: the error message with which it ended; "" if there was none.
            trained: whether it did what it was started for: a learner has taken a step.
        """
        if self.given_up:
            return None
        if self.times_s and now_s - self.times_s[-1] >= HEALTHY_S * patience:
            self.times_s, self.alike, self.untrained = [], 0, 0
        again = words == self.words and (bool(words) or not trained)
        self.alike = self.alike + 1 if again else 1
        self.untrained = 0 if trained else self.untrained + 1 if again else 1
        self.words = words
        if self.alike >= ALIKE_MAX or (words and self.untrained >= UNTRAINED_MAX):
            before = " before its first step" if self.untrained == self.alike else ""
            how = "with the same words" if words else "without a word"
            self.told = f"ended {self.alike} times in a row {how}{before}"
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
        """Record a restart, and keep only as many times as the largest window counts."""
        self.times_s = [*self.times_s, at_s][-max(window.restarts_max for window in WINDOWS) :]
