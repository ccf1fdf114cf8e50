"""Overload: when rounds wait for the syncer's own workers, and not for learners.

One worker each measures contributions, computes merges and writes records. A worker with more to do
than it can falls behind, and then versions are published late, or rounds lack contributions: those
that have arrived and are not measured when the grace is over, and those of learners that are not
asked, since their earlier answers still wait. So:

- a worker is *full* when it was busy for `FULL_SHARE` of the last `WINDOW_S`; the one that measures
  also at `BUSY_SHARE`, if most rounds of that time lacked contributions because of it;
- an entry is recorded when a worker becomes full, again every `TOLD_EVERY_S` while one is, and when
  none is any more.

A piece of work counts when it is complete, and none does before the run's first merge is: kernels
are compiled and the journal is read before that, and nothing is late because of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

INSPECTING = "inspecting"
MERGING = "merging"
WRITING = "writing"

WINDOW_S = 10.0
FULL_SHARE = 0.9
BUSY_SHARE = 0.5
TOLD_EVERY_S = 60.0

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
    def told(self) -> str:
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
class LoadWatch:
    """Watches for workers that are full; `full` tells whether the last report named one."""

    full: bool = False
    told_s: float = 0.0
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
        found = None if self._since_s is None else self._judge(workers, now_s - self._since_s)
        self._since_s = now_s
        self._before_s = {name: worker.busy_s for name, worker in workers.items()}
        self._opened = 0
        self._lately.clear()
        if found is None:
            news = self.full
            found = Overload("", 0.0, 0, self._lacking, self._left_out)
        else:
            news = not self.full or now_s - self.told_s >= TOLD_EVERY_S
        if not news:
            return None
        self.full, self.told_s = bool(found.worker), now_s
        self._lacking = 0
        self._left_out = 0
        return found

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
