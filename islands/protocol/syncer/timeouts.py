"""Every timeout of the syncer, each derived from times that it has measured.

=======================  =====================================================  =================
what is waited for       how long                                               settings
=======================  =====================================================  =================
a round's quorum         4 · max(P steps, longest exchange of those asked)      at least `round_s`
one learner's answer     4 · its exchange, or 4 · P steps                       at least `round_s`
before asking again      its exchange, or τ steps; values twice as long         at least `resend_s`
                         after each repetition
progress at the end      4 · (longest step + exchange) of reachable learners,   at least `final_s`
                         restarted by each progress
the whole end            that, for each stage and each wave of closing rounds;  at least `final_s`
                         `compile_s` for it while somebody is not measured
a silent learner         is left out for 4, 16, 64 ... times as long as it      at most 4 hours
                         was waited for, until it answers
before warning           4 · (step + exchange), or 3 intervals                  at least `round_s`
=======================  =====================================================  =================

The **exchange** of a learner is the time from a pull to its answer, on this syncer's clock: the way
there, the copy to the host or the step that it waits for, and the transfer of the fragment back at
the rate that the link has. It is measured for every answer, also for one that comes too late: so a
timeout that was too short shows what it should have been. Until there is an answer, the time from
sending a value to the report of its adoption stands in for it (the same bytes go the other way),
with the steps added that a copy may take.

No learner is waited for longer because it did not answer: one that never does would stop a run with
K = all, and its end. It is left out for a while instead, and its answer, late as it is, both ends
that and tells how long to wait for the next one.

The margin is four times because measured times vary (a link is shared, a step compiles), and since
waiting too short costs a whole exchange, while waiting too long costs little: a round that lacks
its quorum asks each learner that becomes eligible, and an absent learner is excused by liveness,
not by these timeouts.

Source: protocol §7, "the rest derive from measured step and transfer times".
With 4·P·ξ_step alone for a round, none closes where the network is slower.
"""

from dataclasses import dataclass, field

from islands.protocol.settings.run import Timing

MARGIN = 4
"""Something may take this many times longer than it took at most lately."""

TIME_MAX_S = 4 * 3600.0
"""Longest wait for an exchange, and longest time left out: 1 GB at 1 Mbit/s takes 2.3 hours."""

CLOSING_STAGES = 3
"""Stages of the end that wait for learners (`closing.py`)."""

DOUBLED_MAX = 12
"""A repetition waits at most 2¹² times as long as the first one, and at most `TIME_MAX_S`."""

UNMEASURED_STEPS = 8
"""Steps that an answer may wait for: the one that runs, and a copy that takes several."""

SAMPLES_LEAST = 8
"""Samples after which the longest one may be forgotten, or P if that is more: fragments may differ
in size."""

ASKED_KEPT = 16
"""Pulls per learner whose time is kept, so that late answers tell how long they took."""

INTERVALS_SILENT = 3
"""Intervals without a merge after which a warning is recorded."""

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
        """Take in a sample."""
        self.current = max(self.current, min(sample_s, TIME_MAX_S))
        self.samples += 1
        if self.samples >= max(window, SAMPLES_LEAST):
            self.before, self.current, self.samples = self.current, 0.0, 0


@dataclass(slots=True)
class Exchange:
    """Times of one incarnation, measured on the syncer's clock.

    `answers_s` are from a pull to its answer, `adoptions_s` from sending a value to the report that
    it is adopted. `ages_s` are the ages of contributions, from the step with which each ends: its
    copy to the host, and those before it, took as long. `asked` tells when each round first asked,
    over the link that is open, `late_s` by how much the last answer missed its round. A learner
    that was given up is left out until `left_out_until_s`; `in_vain_s` is for how long it was left
    out last, 0 once it has answered.
    """

    answers_s: Longest = field(default_factory=Longest)
    adoptions_s: Longest = field(default_factory=Longest)
    ages_s: Longest = field(default_factory=Longest)
    asked: dict[int, float] = field(default_factory=dict)
    late_s: float | None = None
    in_vain_s: float = 0.0
    left_out_until_s: float | None = None

    def ask(self, round_: int, now_s: float) -> None:
        """Note when a pull is sent; a repetition changes nothing."""
        self.asked.setdefault(round_, now_s)
        if len(self.asked) > ASKED_KEPT:
            del self.asked[min(self.asked)]

    def answer(self, round_: int, now_s: float, window: int) -> None:
        """Measure an answer that arrived, in time or late."""
        asked_s = self.asked.get(round_)
        if asked_s is not None:
            self.declined(round_)
            self.answers_s.add(now_s - asked_s, window)

    def declined(self, round_: int) -> None:
        """Take in any answer to a pull, also an empty one: the learner may be asked again."""
        if self.asked.pop(round_, None) is not None:
            self.in_vain_s, self.left_out_until_s = 0.0, None

    def given_up(self, round_: int, now_s: float) -> None:
        """Stop waiting for an answer; each time in a row the learner is left out for longer."""
        asked_s = self.asked.get(round_)
        if asked_s is not None and self.left_out_until_s is None:
            longest_s = max(self.in_vain_s, now_s - asked_s)
            self.in_vain_s = min(MARGIN * longest_s, TIME_MAX_S)
            self.left_out_until_s = now_s + self.in_vain_s

    def readmit(self, now_s: float) -> bool:
        """Return whether its time of being left out is over now, so that it may be asked again."""
        if self.left_out_until_s is None or now_s < self.left_out_until_s:
            return False
        self.left_out_until_s = None
        return True

    def measured_s(self, step_s: float) -> float | None:
        """Return how long an answer takes, by what was measured; None if nothing was.

        Args:
            step_s: step time of this learner, or of the fleet.
        """
        if self.answers_s.value is not None:
            return self.answers_s.value
        if self.adoptions_s.value is not None:
            return self.adoptions_s.value + UNMEASURED_STEPS * step_s
        return None


def answer_timeout_s(
    timing: Timing, *, fragments: int, step_s: float, exchange_s: float | None
) -> float:
    """Return how long one learner's answer is waited for, and how long it may count as busy.

    Args:
        timing: the run's timing settings.
        fragments: P, the number of fragments.
        step_s: ξ_step, 0 while it is unknown.
        exchange_s: the learner's exchange, None while it is unknown.
    """
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
    """Return how long the end of the run waits without progress.

    Args:
        timing: the run's timing settings.
        step_s: longest step time of the learners waited for.
        exchange_s: longest exchange of the learners waited for, with the age of what it brings, or
            longest adoption of a value.
    """
    answer_s = min(MARGIN * exchange_s, TIME_MAX_S)
    return max(timing.scaled(timing.final_s), MARGIN * step_s + answer_s)


def end_at_most_s(
    timing: Timing, *, patience_s: float, fragments: int, at_once: int, measured: bool
) -> float:
    """Return how long the whole end waits for learners, whatever the progress.

    Args:
        timing: the run's timing settings.
        patience_s: longest wait of one stage for any reachable learner.
        fragments: P; each fragment has one closing round.
        at_once: closing rounds that may be open at the same time.
        measured: whether every learner with an account can be reached and was measured.
    """
    waves = -(-fragments // at_once)
    each_s = patience_s if measured else max(patience_s, timing.scaled(timing.compile_s))
    return (CLOSING_STAGES + waves) * each_s


def warning_patience_s(
    timing: Timing, *, interval_steps: float, step_s: float, exchange_s: float
) -> float:
    """Return how long nothing is merged before a warning is recorded.

    Args:
        timing: the run's timing settings.
        interval_steps: H/P.
        step_s: ξ_step.
        exchange_s: longest exchange of the reachable learners.
    """
    intervals_s = INTERVALS_SILENT * interval_steps * step_s
    return max(timing.scaled(timing.round_s), intervals_s, MARGIN * (step_s + exchange_s))
