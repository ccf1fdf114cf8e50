"""When a run has diverged: no learner can train from the published values any more.

A learner whose loss is not a finite number leaves its incarnation and begins again: from the
published values, with fresh moments. That repairs a learner that was broken alone. It cannot repair
a run whose published values or learning rate are at fault, where it would go on for ever. So:

- each such end counts for its learner, until an incarnation of it trains well
  (`RunSettings.well_steps`);
- a run is closed, with a sentence, once every learner has `DIVERGED_MAX` such ends in a row.

A learner that is away still counts as one that trains well, for as long as a compilation may take
and as long as its account is open, unless it left: one learner whose device is broken must not end
the run before a killed one is back, nor before the others have dialled a restarted syncer.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation, LearnerName
from islands.protocol.settings.run import RunSettings

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
