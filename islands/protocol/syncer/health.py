"""Watches: each warns of what has been wrong for long, and repeats itself at most once a minute.

**Standstill.** While learners step and no version is committed for several intervals, the tape gets
an entry `nothing_merged`. It tells for how long, what became of the rounds meanwhile, and for each
learner why it was not asked, how long its answer has been awaited, or by how much its last one was
late. The log and the screen show it. It is repeated while it stays true, at most once a minute.
`waits_for` names the members that a run waits for (`standstill.py`), and is repeated
in the same way.

**Swings** (oscillation): merged directions undo those before them, so the outer step is too long.

Each merge measures the cosine between its direction and the momentum, which at μ = 0 is the merged
direction before it. Steps that make progress agree with those before (above 0), chance gives 0 on
average, and steps that swing about an optimum undo one another (below 0). So:

- a fragment swings once all of its last `SWING_WINDOW` cosines are below 0, and their mean is below
  `SWINGS_BELOW`, many times what chance and rounding leave of a fragment of 64 KiB;
- it stops swinging once that mean is back at 0; in between, its state does not change;
- an entry is recorded when a fragment begins to swing, when more do than were reported, and when
  none does any more; at most once a minute.

Reference: the limit of stability that is exceeded, in `islands.protocol.syncer.stability`.

**Divergence**: no learner can train from the published values any more.

A learner whose loss is not a finite number leaves its incarnation and begins again: from the
published values, with fresh moments. That repairs a learner that was broken alone. It cannot repair
a run whose published values or learning rate are at fault, where it would go on for ever. So:

- each such end counts for its learner, until an incarnation of it trains well
  (`RunSettings.well_steps`);
- a run is closed, with a sentence, once every learner has `DIVERGED_MAX` such ends in a row.

A learner that is away still counts as one that trains well, for as long as a compilation may take
and as long as its account is open, unless it left: one learner whose device is broken must not end
the run before a killed one is back, nor before the others have dialled a restarted syncer.

**Overload**: rounds wait for the syncer's own workers, and not for learners.

One worker each measures contributions, computes merges and writes records. A worker with more to do
than it can falls behind, and then versions are published late, or rounds lack contributions: those
that have arrived and are not measured when the grace is over, and those of learners that are not
asked, since their earlier answers still wait. So:

- a worker is *full* when it was busy for `FULL_SHARE` of the last `WINDOW_S`; the one that measures
  also at `BUSY_SHARE`, if most rounds of that time lacked contributions because of it;
- an entry is recorded when a worker becomes full, again every minute while one is, and when
  none is any more.

A piece of work counts when it is complete, and none does before the run's first merge is: kernels
are compiled and the journal is read before that, and nothing is late because of it.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation, LearnerName
from islands.protocol.messages.training import FragmentProgress
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.grace import Durations, overlap_needed
from islands.protocol.syncer.timeouts import WARN_EVERY_S

IDLE_KEPT = 64
"""Names that were ended for standing still and have done no step since, of which it is known."""

NAMED_MOST = 8
"""Number of learners whose reason is given; of thousands, these tell enough."""


@dataclass(slots=True)
class Watch:
    """Since when something has been wrong, None while it is not, and when that was last told."""

    since_s: float | None = None
    warned_s: float | None = None

    def warned_lately(self, now_s: float) -> bool:
        """Return whether it is too early to repeat a warning."""
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


@dataclass(frozen=True, slots=True)
class OverlapShortfall:
    """The exchange takes longer than the overlapped steps hide; `steps_needed` would hide it."""

    exchange_s: float
    hidden_s: float
    steps_needed: int


@dataclass(slots=True)
class GraceWatch(Watch):
    """Watches for a grace that stays 0 because the exchange takes longer than τ steps.

    Then only the K fastest answers are merged: the operator should know, and may choose a larger τ
    or a better network.
    """

    def look(
        self, durations: Durations, *, overlap_steps: int, patient_s: float, now_s: float
    ) -> OverlapShortfall | None:
        """Return the shortfall, if it has lasted for `patient_s`.

        Without overlap there is never a grace, and so nothing to warn of.
        """
        needed = overlap_needed(durations)
        if needed is None or overlap_steps == 0:
            return None
        hidden_s = overlap_steps * (durations.step_s.value or 0.0)
        exchange_s = (durations.quorum_s.value or 0.0) + (durations.sync_s.value or 0.0)
        if not self.due(wrong=exchange_s >= hidden_s, now_s=now_s, patience_s=patient_s):
            return None
        return OverlapShortfall(exchange_s, hidden_s, needed)


@dataclass(slots=True)
class MergeWatch(Watch):
    """Watches for how long nothing is merged; `abandoned` counts the rounds lost meanwhile."""

    merges: int = 0
    abandoned: int = 0

    def stands_still_s(
        self, merges: int, *, expected: bool, now_s: float, patience_s: float
    ) -> float | None:
        """Return for how long nothing was merged although learners stepped, if that is news.

        A merge is `expected` if a learner steps, and the run is neither paused nor ending.
        """
        if expected and (self.since_s is None or merges != self.merges):
            self.merges, self.since_s, self.abandoned = merges, now_s, 0
        due = self.due(wrong=expected, now_s=now_s, patience_s=patience_s)
        return now_s - self.since_s if due and self.since_s is not None else None

    def count_abandoned(self) -> None:
        """Count a round that was abandoned."""
        self.abandoned += 1


def why(
    left_out: dict[LearnerName, str], waiting_s: dict[LearnerName, float], late_s: dict[str, float]
) -> dict[str, str]:
    """Return a sentence for each of the first few learners by name.

    Args:
        left_out: why a learner is not asked for the next fragment.
        waiting_s: for how long the answer of a learner that was asked has been awaited.
        late_s: by how much the last answer missed its round.
    """
    reasons: dict[str, str] = {}
    for name in sorted({*left_out, *waiting_s})[:NAMED_MOST]:
        parts = []
        if name in waiting_s:
            parts.append(f"asked {waiting_s[name]:.1f} s ago, has not answered")
        elif name in left_out:
            parts.append(left_out[name])
        if name in late_s:
            parts.append(f"its last answer came {late_s[name]:.1f} s too late")
        reasons[name] = "; ".join(parts)
    return reasons


@dataclass(slots=True)
class Standing:
    """Since when an account shows no work: its tokens, and what its learner reports to hold."""

    tokens: int
    reported: tuple[FragmentProgress, ...] | None
    since_s: float


SWING_WINDOW = 8

SWINGS_BELOW = -0.05


@dataclass(frozen=True, slots=True)
class Swinging:
    """The number of fragments that swing, 0 if that is over, and their lowest mean cosine."""

    fragments: int
    cosine: float


@dataclass(slots=True)
class _Swing:
    """One fragment's last cosines, and whether it swings."""

    cosines: deque[float] = field(default_factory=lambda: deque(maxlen=SWING_WINDOW))
    swings: bool = False

    @property
    def mean(self) -> float:
        return sum(self.cosines) / len(self.cosines)

    def merged(self, cosine: float) -> None:
        self.cosines.append(cosine)
        negative = len(self.cosines) == SWING_WINDOW and max(self.cosines) < 0
        if negative and self.mean < SWINGS_BELOW:
            self.swings = True
        elif self.mean >= 0:
            self.swings = False


@dataclass(slots=True)
class SwingWatch(Watch):
    """Watches for fragments that swing; `reported` of them are known to the tape."""

    reported: int = 0
    _fragments: dict[int, _Swing] = field(default_factory=dict)

    def merged(self, fragment: int, cosine: float, now_s: float) -> Swinging | None:
        """Take in a merge's cosine; return what to report, if it is time for a report."""
        self._fragments.setdefault(fragment, _Swing()).merged(cosine)
        means = [swing.mean for swing in self._fragments.values() if swing.swings]
        news = len(means) > self.reported or (self.reported > 0 and not means)
        if not news or self.warned_lately(now_s):
            return None
        self.reported, self.warned_s = len(means), now_s
        return Swinging(len(means), min(means, default=0.0))


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
        """Take in a learner's report of `steps` in its incarnation, all with a finite loss."""
        streak = self._refresh(name, now_s, settings)
        if steps >= settings.well_steps:
            streak.times = 0

    def diverged(
        self, name: LearnerName, incarnation: Incarnation, now_s: float, settings: RunSettings
    ) -> int:
        """Count a learner's end by a loss that is not finite; return how many it has in a row.

        An incarnation counts once: a link may deliver its message twice, and the supervisor's view
        may come before it.
        """
        streak = self._refresh(name, now_s, settings)
        if streak.ended is None or streak.ended < incarnation:
            streak.times, streak.ended = streak.times + 1, incarnation
        return streak.times

    def left(self, name: LearnerName) -> None:
        """Forget a learner that departed of its own accord: nobody waits for it."""
        self.streaks.pop(name, None)

    def of_everyone(self, members: Iterable[LearnerName]) -> bool:
        """Return whether every learner has diverged too often.

        Args:
            members: learners with an open account, whether or not they were heard since this start.
        """
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
    """Return the sentence with which a diverged run ends."""
    return (
        f"{DIVERGED}: {DIVERGED_MAX} times in a row the loss of every learner was not a finite "
        "number, although each had begun again from the published values with fresh moments; "
        f"lower run.learning_rate (now {settings.learning_rate:g}) or lengthen "
        f"run.warmup_steps (now {settings.warmup_steps}), look at the data, and begin anew in "
        "another folder"
    )


INSPECTING = "inspecting"

MERGING = "merging"

WRITING = "writing"

WINDOW_S = 10.0

FULL_SHARE = 0.9

BUSY_SHARE = 0.5


MENDED = {
    INSPECTING: "give its host more cores, or learners more steps between rounds (interval_steps)",
    MERGING: "give learners more steps between rounds (interval_steps)",
    WRITING: "give the journal a faster disk, or learners more steps between rounds",
}


@dataclass(frozen=True, slots=True)
class Busy:
    """A worker's busy time since its start, its number of threads, and the work that waits."""

    busy_s: float
    places: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Overload:
    """A report of the worker that is full, or that none is any more.

    Attributes:
        worker: name of the worker that is full; "" if none is any more.
        share: share of the last `WINDOW_S` for which it was busy.
        waiting: pieces of work that it has not begun.
        rounds: how many rounds lacked contributions because of it, since the last report.
        left_out: how many contributions those were.
    """

    worker: str
    share: float
    waiting: int
    rounds: int
    left_out: int

    @property
    def sentence(self) -> str:
        """The report in a sentence, with what can be done about the load."""
        if not self.worker:
            return "the syncer keeps up again"
        effect = "versions are published late"
        if self.worker == INSPECTING:
            effect = f"{self.rounds} rounds lacked {self.left_out} contributions because of it"
        return (
            f"the syncer's worker for {self.worker} is {self.share:.0%} busy, and {effect}: "
            f"{MENDED[self.worker]}"
        )


@dataclass(slots=True)
class LoadWatch(Watch):
    """Watches for workers that are full; `full` tells whether the last report named one."""

    full: bool = False
    _merged: bool = False
    _since_s: float | None = None
    _before_s: dict[str, float] = field(default_factory=dict)
    _lacking: int = 0
    _left_out: int = 0
    _opened: int = 0
    _lately: dict[int, None] = field(default_factory=dict)

    def opened(self, number: int, held_up: int) -> None:
        """Count a round that opened without learners whose earlier answers wait to be measured."""
        self._opened += 1
        self.lacks(number, held_up)

    def merged(self) -> None:
        """Note that a merge is complete: from the first one on, the load is judged."""
        self._merged = True

    def lacks(self, number: int, left_out: int) -> None:
        """Count the contributions that a round lacks since they wait to be measured."""
        if left_out and self._merged:
            self._lacking += number not in self._lately
            self._lately[number] = None
            self._left_out += left_out

    def look(self, workers: Mapping[str, Busy], now_s: float) -> Overload | None:
        """Judge the time since the last look, if it was long enough; return what to report."""
        if not self._merged or (self._since_s is not None and now_s - self._since_s < WINDOW_S):
            return None
        fullest = None if self._since_s is None else self._judge(workers, now_s - self._since_s)
        self._since_s = now_s
        self._before_s = {name: worker.busy_s for name, worker in workers.items()}
        self._opened = 0
        self._lately.clear()
        if fullest is None:
            news = self.full
            fullest = Overload("", 0.0, 0, self._lacking, self._left_out)
        else:
            news = not self.full or not self.warned_lately(now_s)
        if not news:
            return None
        self.full, self.warned_s = bool(fullest.worker), now_s
        self._lacking = 0
        self._left_out = 0
        return fullest

    def _judge(self, workers: Mapping[str, Busy], for_s: float) -> Overload | None:
        """Return the worker with the largest busy share, if it is full."""
        shares = {
            name: min(1.0, (worker.busy_s - self._before_s[name]) / (for_s * worker.places))
            for name, worker in workers.items()
        }
        fullest = max(shares, key=lambda name: shares[name])
        if 2 * len(self._lately) > self._opened and shares[INSPECTING] >= BUSY_SHARE:
            fullest = INSPECTING
        elif shares[fullest] < FULL_SHARE:
            return None
        waiting = workers[fullest].waiting
        return Overload(fullest, shares[fullest], waiting, self._lacking, self._left_out)


@dataclass(slots=True)
class Health:
    """The memory of the sweep: warnings, and who does no step.

    `swept_s` is the time of the last sweep (`retries.py`). `standing` has the accounts that show no
    work, and `idle` the names that were ended for it and have done no step since (`standstill.py`).
    """

    swept_s: float
    grace_watch: GraceWatch = field(default_factory=GraceWatch)
    swings: SwingWatch = field(default_factory=SwingWatch)
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
        """Note since when an account shows no work."""
        self.standing[name] = standing

    def forget_standing(self, but: Collection[LearnerName] = ()) -> None:
        """Forget accounts that are closed."""
        for name in [name for name in self.standing if name not in but]:
            del self.standing[name]

    def end_idle(self, name: LearnerName) -> None:
        """Note that a name was ended for standing still; the last ones are known."""
        self.idle[name] = None
        if len(self.idle) > IDLE_KEPT:
            del self.idle[next(iter(self.idle))]

    def works(self, name: LearnerName) -> None:
        """Note that a name has done a step again."""
        self.idle.pop(name, None)
