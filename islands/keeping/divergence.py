"""Judges whether a run has diverged, and which of its values are from before that.

A look is at the run's loss, which is the mean of the learners' smoothed losses, once each learner
has reported steps since the look before (after a while most are enough). Of the last `WINDOW` looks
that were not too high, m is the median, and q what nine in ten are below. A loss is **too high**
above the largest of

    m + 2·|m|              three times the median; of a negative loss, as far above it
    m + 4·(q − m)          what the noise of few learners, or a loss that falls, does not reach
    m + (b − m)/10         a tenth of what the run has gained since it began at b: a loss that is
                           next to 0 may well be ten times another such loss

**The run has diverged** in one of two cases. First: for `lasting_s`, and in `HIGH_LEAST` looks in a
row, the loss was too high or no number. Second: most learners have begun again twice since their
losses were no numbers, each without `well_steps` healthy steps in between. The syncer ends a run
whose learners all do that three times (`protocol/syncer/timeouts.py`).

Before `LEAST` looks the limit is three times the highest loss, if all were above 0. A run whose
loss never was a number is left to the syncer. One learner whose device is broken is a small part of
the mean, or none.

**Values are sound** up to two looks before the last one that was calm, which is at most a quarter
of the way from m to too high: what each learner reported to that look, it did after it had them.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import median_low

WINDOW = 128
LEAST = 16
"""Looks before which no median is known."""

HIGH_LEAST = 8
TIMES = 3
NOISE = 4
GAINED_SHARE = 10
RELAPSES = 2
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Divergence:
    """That a run has diverged: why one thinks so, and after how many merges it was sound last.

    The latter is `UNKNOWN` of a run that was so when this start of the hub began.
    """

    why: str
    sound: int


@dataclass(slots=True)
class DivergenceWatch:
    """The looks at one run, whose values were `sound` after so many merges."""

    lasting_s: float
    well_steps: int
    began_at: float = -inf
    sound: int = UNKNOWN
    _learned: int = 0
    _steps: dict[str, int] = field(default_factory=dict)
    _looked_s: float = -inf
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _merges: deque[int] = field(default_factory=lambda: deque(maxlen=3))
    _high_since_s: float | None = None
    _high: int = 0
    _relapsed: dict[str, int] = field(default_factory=dict)

    def learn(self, losses: Iterable[float]) -> None:
        """Take over what was usual before this start of the hub."""
        for loss in losses:
            if not self._too_high(loss):
                self._add(loss)

    @property
    def suspects(self) -> bool:
        """Whether the last look was too high."""
        return self._high > 0

    @property
    def _begun(self) -> bool:
        """Whether the run ever was as it should be."""
        return bool(self._usual) or self.sound != UNKNOWN

    @property
    def limit(self) -> float:
        """Above this a loss is too high."""
        if len(self._usual) < LEAST:
            return TIMES * max(self._usual) if self._usual and min(self._usual) > 0 else inf
        usual = median_low(self._usual)
        highest = sorted(self._usual)[len(self._usual) * 9 // 10]
        return usual + max(
            (TIMES - 1) * abs(usual),
            NOISE * (highest - usual),
            (self.began_at - usual) / GAINED_SHARE,
        )

    def due(self, now_s: float, steps: Mapping[str, int]) -> bool:
        """Return whether it is time for a look, by the steps of each learner that is here."""
        stepped = sum(done > self._steps.get(name, 0) for name, done in steps.items())
        late = now_s - self._looked_s >= self.lasting_s / HIGH_LEAST
        if 2 * stepped <= len(steps) or not (late or stepped == len(steps)):
            return False
        self._steps, self._looked_s = dict(steps), now_s
        return True

    def look(self, now_s: float, loss: float, merges: int) -> Divergence | None:
        """Look at a loss; return what has happened if the run has diverged by now."""
        self._merges.append(merges)
        if not self._too_high(loss):
            self._high, self._high_since_s = 0, None
            self._add(loss)
            if self._is_calm(loss):
                self.sound = self._merges[0]
            return None
        if self._high_since_s is None:
            self._high_since_s = now_s
        self._high += 1
        for_s = now_s - self._high_since_s
        if for_s < self.lasting_s or self._high < HIGH_LEAST or not self._begun:
            return None
        if not isfinite(loss):
            return Divergence(f"its loss is no finite number for {for_s:.0f} s", self.sound)
        usual = median_low(self._usual)
        why = f"its loss is {loss:.4g} for {for_s:.0f} s, and the median before it {usual:.4g}"
        return Divergence(why, self.sound)

    def relapse(
        self, name: str, times: int, steps: Mapping[str, int], here: Collection[str]
    ) -> Divergence | None:
        """Note that a learner begins again, as often in a row, since its loss was no number.

        `steps` has what each learner has done since the run began, and `here` who is present.
        """
        self._relapsed.pop(name, None)
        if times >= RELAPSES:
            self._relapsed[name] = steps.get(name, 0)
        ill = self._relapsed = {
            each: before
            for each, before in self._relapsed.items()
            if each in steps and steps[each] - before < self.well_steps
        }
        if not self._begun or 2 * len(ill) <= len({*ill, *here}):
            return None
        told = "its only learner" if len(ill) == 1 else f"{len(ill)} learners"
        return Divergence(f"{RELAPSES} times in a row {told} had no finite loss", self.sound)

    def forget(self, name: str) -> None:
        """Note that a learner is gone for another reason."""
        self._relapsed.pop(name, None)

    def _too_high(self, loss: float) -> bool:
        return not isfinite(loss) or loss > self.limit

    def _is_calm(self, loss: float) -> bool:
        usual = median_low(self._usual)
        return loss <= usual + (self.limit - usual) / 4

    def _add(self, loss: float) -> None:
        if self._learned < LEAST:
            self.began_at = max(self.began_at, loss)
        self._learned += 1
        self._usual.append(loss)
