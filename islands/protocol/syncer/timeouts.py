"""The syncer's timeouts that follow from measured times; `sweep.py` has those of a learner.

=======================  =====================================================  =================
what is waited for       how long                                               settings
=======================  =====================================================  =================
a round's quorum         4 · max(P steps, longest exchange of those asked)      at least `round_s`
one learner's answer     4 · its exchange, or 4 · P steps                       at least `round_s`
before sending again     its exchange, or τ steps; twice as long after each     at least `resend_s`
                         repetition
progress at the end      4 · (longest step + exchange) of reachable learners,   at least `final_s`
                         restarted by each progress
the whole end            that, for each stage and each wave of closing rounds;  at least `final_s`
                         `compile_s` for it while somebody is not measured
before warning           4 · (step + exchange), or 3 · H/P steps                at least `round_s`
=======================  =====================================================  =================

The **exchange** of a learner is the time from a pull to its answer, on this syncer's clock. It is
measured for every answer, also for one that comes too late: so a timeout that was too short shows
what it should have been. Until there is an answer, the time from sending a value to the report of
its adoption stands in for it, with the steps added that a copy may take. No learner is waited for
longer because it did not answer (`pulls.py`). The margin is four times, since waiting too short
costs a whole exchange, while waiting too long costs little.

Grace, and patience where K is `auto`, are those of protocol §3.4.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from statistics import median_low

from islands.protocol.running_statistics import MovingAverage
from islands.protocol.settings.run import Timing

MARGIN = 4
"""Something may take this many times longer than it took at most lately."""

TIME_MAX_S = 4 * 3600.0
"""Longest wait for an exchange: 1 GB at 1 Mbit/s takes 2.3 hours."""

CLOSING_STAGES = 3
"""Stages of the end that wait for learners (`closing.py`)."""

DOUBLED_MAX = 12
"""A repetition waits at most 2¹² times as long as the first one, and at most `TIME_MAX_S`."""

UNMEASURED_STEPS = 8
"""Steps that an answer may wait for: the one that runs, and a copy that takes several."""

SAMPLES_LEAST = 8
"""Samples after which the longest one may be forgotten, or P if that is more: fragments may differ
in size."""

USUAL_OF = 5
"""Newest answers whose median is what a learner usually takes: one stall does not count."""

INTERVALS_SILENT = 3
"""Intervals between rounds without a merge, after which a warning is recorded."""

WARN_EVERY_S = 60.0
"""A warning that stays true is repeated at most so often."""


@dataclass(slots=True)
class Longest:
    """The longest of the newest samples, at least `window` and at most twice as many of them."""

    current: float = 0.0
    before: float = 0.0
    samples: int = 0

    @property
    def value(self) -> float | None:
        """The longest sample, None until there is one."""
        return max(self.current, self.before) or None

    def add(self, sample_s: float, window: int) -> None:
        self.current = max(self.current, min(sample_s, TIME_MAX_S))
        self.samples += 1
        if self.samples >= max(window, SAMPLES_LEAST):
            self.before, self.current, self.samples = self.current, 0.0, 0


@dataclass(slots=True)
class Exchange:
    """Times of one incarnation, measured on the syncer's clock.

    `answers_s` are from a pull to its answer, `adoptions_s` from sending a value to the report that
    it is adopted, and `ages_s` from the step with which a contribution ends to its arrival.
    `newest_s` are the newest answers, and `late_s` is by how much the last one missed a round
    that was abandoned, else None.
    """

    answers_s: Longest = field(default_factory=Longest)
    adoptions_s: Longest = field(default_factory=Longest)
    ages_s: Longest = field(default_factory=Longest)
    newest_s: deque[float] = field(default_factory=lambda: deque(maxlen=USUAL_OF))
    late_s: float | None = None

    def answer(self, after_s: float, window: int) -> None:
        self.answers_s.add(after_s, window)
        self.newest_s.append(after_s)

    @property
    def usual_s(self) -> float | None:
        return median_low(self.newest_s) if self.newest_s else None

    def measured_s(self, step_s: float) -> float | None:
        """Return how long an answer takes, by what was measured; None if nothing was."""
        if self.answers_s.value is not None:
            return self.answers_s.value
        if self.adoptions_s.value is not None:
            return self.adoptions_s.value + UNMEASURED_STEPS * step_s
        return None


def answer_timeout_s(
    timing: Timing, *, fragments: int, step_s: float, exchange_s: float | None
) -> float:
    """Return how long an answer is waited for; who says nothing until then is silent."""
    steps = max(fragments, UNMEASURED_STEPS) if exchange_s is None else fragments
    answer_s = min(MARGIN * (exchange_s or 0.0), TIME_MAX_S)
    return max(timing.scaled(timing.round_s), MARGIN * steps * step_s, answer_s)


def resend_s(
    timing: Timing, *, overlap_steps: int, step_s: float, exchange_s: float | None
) -> float:
    """Return how long to wait before an unanswered pull or an unadopted value is sent again."""
    longest_s = max(overlap_steps * step_s, exchange_s or 0.0)
    return max(timing.scaled(timing.resend_s), longest_s)


def doubled_s(interval_s: float, repetitions: int) -> float:
    """Return how long to wait after so many repetitions of what may still be under way."""
    return min(interval_s * float(2 ** min(repetitions, DOUBLED_MAX)), TIME_MAX_S)


def final_patience_s(timing: Timing, *, step_s: float, exchange_s: float) -> float:
    """Return how long the end waits without progress of a learner with such an exchange."""
    answer_s = min(MARGIN * exchange_s, TIME_MAX_S)
    return max(timing.scaled(timing.final_s), MARGIN * step_s + answer_s)


def end_at_most_s(
    timing: Timing, *, patience_s: float, fragments: int, at_once: int, measured: bool
) -> float:
    """Return how long the whole end waits, with so many closing rounds at once."""
    waves = -(-fragments // at_once)
    each_s = patience_s if measured else max(patience_s, timing.scaled(timing.compile_s))
    return (CLOSING_STAGES + waves) * each_s


def warning_patience_s(
    timing: Timing, *, interval_steps: float, step_s: float, exchange_s: float
) -> float:
    """Return how long nothing is merged before a warning is recorded."""
    intervals_s = INTERVALS_SILENT * interval_steps * step_s
    return max(timing.scaled(timing.round_s), intervals_s, MARGIN * (step_s + exchange_s))


@dataclass(slots=True)
class Durations:
    """The three measured times of Eq. 3, in seconds."""

    step_s: MovingAverage
    quorum_s: MovingAverage
    sync_s: MovingAverage

    @classmethod
    def unknown(cls) -> "Durations":
        return cls(MovingAverage(), MovingAverage(), MovingAverage())


def overlap_needed(durations: Durations) -> int | None:
    """Return the τ that hides an exchange; None while its times are unknown."""
    step_s, quorum_s = durations.step_s.value, durations.quorum_s.value
    sync_s = durations.sync_s.value
    if not step_s or quorum_s is None or sync_s is None:
        return None
    return ceil((quorum_s + sync_s) / step_s) + 1


def grace_s(durations: Durations, *, overlap_steps: int, safety: float) -> float:
    """Return the seconds to wait after the K-th arrival (protocol §3.4)."""
    step_s = durations.step_s.value
    quorum_s = durations.quorum_s.value
    sync_s = durations.sync_s.value
    if step_s is None or quorum_s is None or sync_s is None:
        return 0.0
    hidden_s = max(0.0, overlap_steps * step_s - quorum_s - sync_s)
    return min(step_s, safety * hidden_s)


NEAR_SHARE = 0.5
NEAR_TIMES = 2
WITHIN_TIMES = 4
"""The factors of `patience`, in the order of protocol §3.4."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Where K is `auto`: whose usual answers are near enough to await, and for how long, in s."""

    near_s: float = inf
    within_s: float = inf

    def awaits(self, usual_s: float | None) -> bool:
        return usual_s is None or usual_s <= self.near_s


def patience(usual_s: Sequence[float | None], interval_s: float) -> Patience:
    """Return whom a round with K = `auto` waits for, and for how long (protocol §3.4).

    `usual_s` are the usual times of answers, None of a learner that has not answered yet;
    `interval_s` is the duration of H steps, 0 if it is unknown.
    """
    known = [each for each in usual_s if each is not None]
    usual = median_low(known) if known else 0.0
    within_s = max(interval_s, WITHIN_TIMES * usual)
    return Patience(max(NEAR_SHARE * interval_s, NEAR_TIMES * usual), within_s or inf)
