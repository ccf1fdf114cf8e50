"""Timeouts by measured times, and watches over what is wrong for longer: merges, divergence.

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

Grace, and patience where K is `auto`, are those of protocol §3.4. `sweep.py` has the limits of a
learner that does no step.

**Divergence**: a learner whose loss is not a finite number begins again, from the published values,
with fresh moments. Where published values or learning rate are at fault, that would go on for ever:
so a run that is not paused is closed once every learner has had `DIVERGED_MAX` such ends in a row
(a hub may pause it before, `islands/keeping/divergence.py`). A learner that is
away counts as one that trains well, for as long as a compilation may take and as long as its
account is open, unless it left: one broken device must not end the run before a killed learner is
back, nor before the others have dialled a restarted syncer.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from statistics import median_low

from islands.protocol.identities import Incarnation, LearnerName
from islands.protocol.messages.training import FragmentProgress
from islands.protocol.running_statistics import MovingAverage
from islands.protocol.settings.run import RunSettings, Timing

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


IDLE_KEPT = 64
"""Names that were ended for standing still and have done no step since, of which it is known."""

NAMED_MOST = 8
"""Number of learners whose reason is given; of thousands, these are enough."""


@dataclass(slots=True)
class Watch:
    """Since when something has been wrong, None while it is not, and when the last warning was."""

    since_s: float | None = None
    warned_s: float | None = None

    def warned_lately(self, now_s: float) -> bool:
        return self.warned_s is not None and now_s - self.warned_s < WARN_EVERY_S

    def due(self, *, wrong: bool, now_s: float, patience_s: float) -> bool:
        """Return whether to warn now: after `patience_s`, at most once a minute."""
        if not wrong:
            self.since_s = None
            return False
        self.since_s = now_s if self.since_s is None else self.since_s
        if now_s - self.since_s < patience_s or self.warned_lately(now_s):
            return False
        self.warned_s = now_s
        return True


@dataclass(slots=True)
class MergeWatch(Watch):
    """Watches for how long nothing is merged; `abandoned` counts the rounds lost meanwhile."""

    merges: int = 0
    abandoned: int = 0

    def stands_still_s(
        self, merges: int, *, expected: bool, now_s: float, patience_s: float
    ) -> float | None:
        """Return for how long nothing was merged although it was expected, if that is news."""
        if expected and (self.since_s is None or merges != self.merges):
            self.merges, self.since_s, self.abandoned = merges, now_s, 0
        due = self.due(wrong=expected, now_s=now_s, patience_s=patience_s)
        return now_s - self.since_s if due and self.since_s is not None else None

    def count_abandoned(self) -> None:
        self.abandoned += 1


@dataclass(slots=True)
class Standing:
    """Since when an account shows no work: its tokens, and what its learner reports to hold."""

    tokens: int
    reported: tuple[FragmentProgress, ...] | None
    since_s: float


DIVERGED = "training has diverged"
"""The reason of an end that nobody wanted begins with this."""

DIVERGED_MAX = 3


@dataclass(slots=True)
class Streak:
    """Consecutive diverged incarnations of one learner; `ended` is the last that was counted."""

    heard_s: float
    times: int = 0
    ended: Incarnation | None = None


@dataclass(slots=True)
class Divergences:
    """The streaks of all learners that were heard lately; the one silent longest comes first."""

    streaks: dict[LearnerName, Streak] = field(default_factory=dict)

    def heard(self, name: LearnerName, steps: int, now_s: float, settings: RunSettings) -> None:
        streak = self._refresh(name, now_s, settings)
        if steps >= settings.well_steps:
            streak.times = 0

    def diverged(
        self, name: LearnerName, incarnation: Incarnation, now_s: float, settings: RunSettings
    ) -> int:
        """Count an end by a loss that is not finite, once; return how many are in a row."""
        streak = self._refresh(name, now_s, settings)
        if streak.ended is None or streak.ended < incarnation:
            streak.times, streak.ended = streak.times + 1, incarnation
        return streak.times

    def left(self, name: LearnerName) -> None:
        self.streaks.pop(name, None)

    def of_everyone(self, members: Iterable[LearnerName]) -> bool:
        """Return whether each learner, and each with an open account, has diverged too often."""
        often = {name for name, streak in self.streaks.items() if streak.times >= DIVERGED_MAX}
        return often.issuperset(self.streaks) and often.issuperset(members)

    def _refresh(self, name: LearnerName, now_s: float, settings: RunSettings) -> Streak:
        streak = self.streaks.pop(name, None) or Streak(now_s)
        streak.heard_s = now_s
        self.streaks[name] = streak
        kept_s = settings.timing.scaled(settings.timing.compile_s)
        while True:  # ends at the first one heard lately; the one above was just now
            oldest = next(iter(self.streaks))
            if now_s - self.streaks[oldest].heard_s < kept_s:
                return streak
            del self.streaks[oldest]


def end_reason(settings: RunSettings) -> str:
    return (
        f"{DIVERGED}: {DIVERGED_MAX} times in a row the loss of every learner was not a finite "
        "number, although each had begun again from the published values with fresh moments; "
        f"lower run.learning_rate (now {settings.learning_rate:g}) or lengthen "
        f"run.warmup_steps (now {settings.warmup_steps}), look at the data, and begin anew in "
        "another folder"
    )


@dataclass(slots=True)
class Health:
    """The memory of the watches; `swept_s` is the time of the last sweep (`sweep.py`).

    `standing` has the accounts that show no work, and `idle` the names that were ended for it and
    have done no step since (`sweep.py`).
    """

    swept_s: float
    merge_watch: MergeWatch = field(default_factory=MergeWatch)
    wait_watch: Watch = field(default_factory=Watch)
    divergences: Divergences = field(default_factory=Divergences)
    standing: dict[LearnerName, Standing] = field(default_factory=dict)
    idle: dict[LearnerName, None] = field(default_factory=dict)

    def sweep(self, now_s: float, every_s: float) -> float | None:
        """Begin a sweep if it is due; return by how much it is late."""
        late_s = now_s - self.swept_s - every_s
        if now_s < self.swept_s + every_s:
            return None
        self.swept_s = now_s
        return late_s

    def stands(self, name: LearnerName, standing: Standing) -> None:
        self.standing[name] = standing

    def forget_standing(self, but: Collection[LearnerName] = ()) -> None:
        for name in [name for name in self.standing if name not in but]:
            del self.standing[name]

    def end_idle(self, name: LearnerName) -> None:
        self.idle[name] = None
        if len(self.idle) > IDLE_KEPT:
            del self.idle[next(iter(self.idle))]

    def works(self, name: LearnerName) -> None:
        self.idle.pop(name, None)
