"""Restarts of a process that ended: a restart intensity that escalates to giving up.

The delay grows by half with each restart within the last hour, up to a minute; after `RESTARTS_MAX`
of them the supervisor gives up on the process and says why, and the run goes on with the others. It
also gives up once a process has ended with the very same error message `ALIKE_MAX` times in a row,
or `UNTRAINED_MAX` times if a learner never stepped between: its task fails each time, or its model
does not fit. One that is killed each time before its first step, without a word, is given up after
`ALIKE_MAX`. A process that stayed up for an hour has recovered.

Reference: the restart intensity of Erlang/OTP supervisors.
"""

from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation

FIRST_DELAY_S = 0.2
DELAY_GROWTH = 1.5
DELAY_MAX_S = 60.0
HOUR_S = 3600.0
RESTARTS_MAX = 20
"""Most restarts within an hour."""
ALIKE_MAX = 6
UNTRAINED_MAX = 3


@dataclass(slots=True)
class Restarts:
    """Restarts of one process; `times_s` are those of the last hour, with their delays included.

    `words` is the error message of its last end, and `alike` how many ends in a row had it.
    """

    times_s: list[float] = field(default_factory=list)
    gave_up_because: str = ""
    """The limit that it exceeded, in words; empty if none."""
    words: str = ""
    alike: int = 0
    untrained: int = 0
    """The ends in a row that came before the first step of their start."""
    incarnation: Incarnation | None = None
    """The incarnation under which it had been admitted when it ended last."""

    @property
    def given_up(self) -> bool:
        return bool(self.gave_up_because)

    def next_delay_s(
        self, now_s: float, patience: float, words: str = "", *, trained: bool = True
    ) -> float | None:
        """Seconds to wait before the next restart; None to give up.

        `words` is the error message with which it ended, "" if there was none, and `trained` says
        whether it did what it was started for: a learner has taken a step.
        """
        if self.given_up:
            return None
        self.times_s = [at_s for at_s in self.times_s if now_s - at_s < HOUR_S * patience]
        if not self.times_s:
            self.alike = self.untrained = 0
        again = words == self.words and (bool(words) or not trained)
        self.alike = self.alike + 1 if again else 1
        self.untrained = 0 if trained else self.untrained + 1 if again else 1
        self.words = words
        if self.alike >= ALIKE_MAX or (words and self.untrained >= UNTRAINED_MAX):
            before = " before its first step" if self.untrained == self.alike else ""
            how = "with the same words" if words else "without a word"
            self.gave_up_because = f"ended {self.alike} times in a row {how}{before}"
            return None
        if len(self.times_s) >= RESTARTS_MAX:
            self.gave_up_because = f"ended more than {RESTARTS_MAX} times within an hour"
            return None
        delay_s = patience * min(DELAY_MAX_S, FIRST_DELAY_S * DELAY_GROWTH ** len(self.times_s))
        self.times_s.append(now_s + delay_s)
        return delay_s
