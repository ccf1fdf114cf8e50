"""What is wrong for long: watches of the sweep warn, at most once a minute; divergences end a run.

**Divergence**: a learner whose loss is not a finite number begins again, from the published values,
with fresh moments. Where published values or learning rate are at fault, that would go on for ever:
so a run is closed once every learner has had `DIVERGED_MAX` such ends in a row. A learner that is
away counts as one that trains well, for as long as a compilation may take and as long as its
account is open, unless it left: one broken device must not end the run before a killed learner is
back, nor before the others have dialled a restarted syncer.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation, LearnerName
from islands.protocol.messages.training import FragmentProgress
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.timeouts import WARN_EVERY_S

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
