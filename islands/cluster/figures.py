"""Figures of a run while it goes on: what its learners did, and what came of it.

They are for people, on a screen and in a summary; nothing decides by them. Losses are smoothed by
steps, however many of them a report is about, and the run's loss is the mean over its learners: so
neither their number nor the speed of their steps changes how a curve looks.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite

from islands.identities import Status
from islands.messages.control import COUNT_MAX, TOTAL_MAX, StepFigures
from islands.numerics.histogram import GapHistogram

FIGURES_FILE = "figures.json"
STEP_ROW_INTERVAL_S = 1.0
LOSS_SMOOTHING = 0.05
"""Weight of one step's loss in the smoothed one."""
POINTS_KEPT = 2048
LARGEST_DRAWN = 1e100
"""Beyond it a value is as good as infinite, and sums of such are no numbers any more."""
PROCESSES_KEPT = 8
"""Of one name: while a process that was cut off lives on, there is its successor."""
FOLDED_KEPT = 64
"""Of one name: processes that are counted, and of which no later word is."""
AWAY_LEAST = 512
"""Learners that are away of which there is a row each, however few there are."""
GONE_PROCESSES_KEPT = 4096
EVENTS_KEPT = 8
STATES_KEPT = 256
SPEED_SAMPLES = 32
SPEED_WINDOW_S = 15.0
SPEED_SAMPLES_LEAST = 3
"""Samples that a speed is measured over at least: a step may take minutes."""


@dataclass(slots=True)
class LearnerFigures:
    """What one learner did, over all its incarnations and processes.

    `processes` are the last words of its newest processes on other hosts, the newest of them last;
    `earlier` is what was counted before those, `folded` the newest processes in it. `loss` is the
    smoothed one since it was admitted last, `diverged` tells whether the last one was no number.
    `states` are the times at which it began to be something else, since the run's first start.
    """

    steps: int = 0
    tokens: int = 0
    incarnations: int = 0
    stepping_s: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    loss: float | None = None
    step_time_s: float = 0.0
    status: str = "starting"
    diverged: bool = False
    process_steps: int = 0
    process_tokens: int = 0
    smoothed_steps: int = 0
    row_s: float = -STEP_ROW_INTERVAL_S
    gaps: GapHistogram = field(default_factory=GapHistogram)
    processes: dict[str, StepFigures] = field(default_factory=dict)
    earlier: "LearnerFigures | None" = None
    folded: list[str] = field(default_factory=list)
    states: list[tuple[float, str]] = field(default_factory=list)

    @property
    def gone(self) -> bool:
        """Whether it was evicted or has left, and has not come back."""
        return self.status in (Status.EVICTED, Status.LEFT)

    def enter(self, at_s: float, state: str) -> None:
        """It is in this state from now on; of very many changes the oldest are forgotten."""
        if not self.states or self.states[-1][1] != state:
            self.states.append((at_s, state))
        if len(self.states) > STATES_KEPT:
            del self.states[: STATES_KEPT // 2]

    def told(self, told: StepFigures) -> None:
        """A report of one of its processes, cumulative since that process began.

        Each process counts once, whichever of them told last. One that was silent while many others
        told has had its last word.
        """
        if told.process in self.folded:
            return
        if self.earlier is None:
            self.earlier = replace(self, processes={})
        self.processes.pop(told.process, None)
        # what it tells of its last steps is not added up, and may be no number, which no file keeps
        summed = replace(told, loss=0.0, step_time_s=0.0, gap_s=0.0, data_wait_s=0.0)
        self.processes[told.process] = summed
        while len(self.processes) > PROCESSES_KEPT:
            ended = self.processes.pop(next(iter(self.processes)))
            self.earlier.count([replace(self.earlier), ended])
            self.folded = [*self.folded, ended.process][-FOLDED_KEPT:]
        self.count([self.earlier, *self.processes.values()])
        self.step_time_s = told.step_time_s if 0 <= told.step_time_s < inf else 0.0

    def count(self, parts: "Sequence[LearnerFigures | StepFigures]") -> None:
        """Be the sum of these, as far as one name can have done so much."""
        self.steps = _bounded(part.steps for part in parts)
        self.tokens = _bounded(part.tokens for part in parts)
        self.stepping_s = min(LARGEST_DRAWN, sum(part.stepping_s for part in parts))
        self.bytes_up = _bounded(part.bytes_up for part in parts)
        self.bytes_down = _bounded(part.bytes_down for part in parts)
        gaps = GapHistogram()
        for part in parts:
            if isinstance(part, StepFigures):
                gaps.merge(part.gap_bins, part.gap_largest_s)
            else:
                gaps.merge(part.gaps.bins, part.gaps.largest_s)
        self.gaps = gaps

    def smooth(self, loss: float) -> bool:
        """Take in the mean loss of the steps since the last time; returns whether there are any."""
        stepped, self.smoothed_steps = self.steps - self.smoothed_steps, self.steps
        if stepped <= 0:
            return False
        self.diverged = not isfinite(loss)
        before = self.loss
        if before is None or not isfinite(before):
            self.loss = loss
        else:
            self.loss = before + (1 - (1 - LOSS_SMOOTHING) ** stepped) * (loss - before)
        return True


@dataclass(slots=True)
class DepartedLearners:
    """Learners that have been away for so long that they are counted together.

    Preemptible machines may come under a new name each time, for weeks. `processes` are the newest
    of theirs: they are counted, and of such a one no later word is.
    """

    names: int = 0
    counted: LearnerFigures = field(default_factory=LearnerFigures)
    processes: dict[str, None] = field(default_factory=dict)

    def take(self, learner: LearnerFigures) -> None:
        """Count a learner here that has no row any more."""
        self.names += 1
        self.counted.incarnations += learner.incarnations
        self.counted.count([replace(self.counted), learner])
        self.processes.update(dict.fromkeys(learner.processes))
        while len(self.processes) > GONE_PROCESSES_KEPT:
            del self.processes[next(iter(self.processes))]


@dataclass(slots=True)
class Curve:
    """Points of a curve from its beginning on; of a long one, every second, fourth, … is kept."""

    points: list[tuple[float, float]] = field(default_factory=list)
    newest: tuple[float, float] | None = None
    every: int = 1
    waiting: int = 0

    def add(self, x: float, y: float) -> None:
        """Go on to this point, if its value is one that can be drawn."""
        if not drawable(y):
            return
        self.newest = x, y
        self.waiting += 1
        if self.waiting < self.every:
            return
        self.waiting = 0
        self.points.append(self.newest)
        if len(self.points) >= POINTS_KEPT:
            del self.points[1::2]  # the newest one is among them, and so has waited once
            self.waiting = self.every
            self.every *= 2

    def all(self) -> list[tuple[float, float]]:
        """The points that are kept, and the newest one."""
        last = [] if self.newest is None or self.newest in self.points[-1:] else [self.newest]
        return [*self.points, *last]


@dataclass(slots=True)
class Speed:
    """How fast something grows, over the last seconds, or the last few times that it grew."""

    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=SPEED_SAMPLES))

    def add(self, at_s: float, total: float) -> None:
        """It has grown to this; said more often than twice a second, the last word counts."""
        if self.samples and total <= self.samples[-1][1]:
            return
        if len(self.samples) > 1 and at_s - self.samples[-2][0] < SPEED_WINDOW_S / SPEED_SAMPLES:
            self.samples.pop()
        self.samples.append((at_s, total))
        while (
            len(self.samples) > SPEED_SAMPLES_LEAST and at_s - self.samples[0][0] > SPEED_WINDOW_S
        ):
            self.samples.popleft()

    def per_s(self, now_s: float) -> float:
        """The speed now; it dwindles while nothing comes."""
        if len(self.samples) < 2:  # noqa: PLR2004  a difference takes two
            return 0.0
        (first_s, first), (last_s, last) = self.samples[0], self.samples[-1]
        overdue = now_s - last_s > 2 * (last_s - first_s) / (len(self.samples) - 1)
        until_s = now_s if overdue else last_s
        return (last - first) / max(1e-9, until_s - first_s)


@dataclass(slots=True)
class WorkTime:
    """Seconds that count against a budget of time: of work, and not of pauses.

    `counted_s` is of before `since_s`, from which on they count; None while they do not.
    """

    counted_s: float = 0.0
    since_s: float | None = None
    paused: bool = False

    def begin(self, at_s: float) -> None:
        """There is something to train; said again, it changes nothing."""
        if self.since_s is None and not self.paused:
            self.since_s = at_s

    def pause(self, at_s: float, *, paused: bool) -> None:
        """An operator's word."""
        if paused and self.since_s is not None:
            self.counted_s, self.since_s = self.total_s(at_s), None
        elif not paused and self.paused:
            self.since_s = at_s
        self.paused = paused

    def total_s(self, now_s: float) -> float:
        """All of them until now."""
        return self.counted_s + (0.0 if self.since_s is None else now_s - self.since_s)


@dataclass(slots=True)
class RunFigures:
    """What the whole run did, as one can show it while it goes on.

    `away` are the learners that are not here, who left last at the end, and `most_present` is how
    many were here at once. `evictions` are those that the supervisor decided, of members of all
    roles, over all its starts. `merged_tokens` are those of all merged contributions, summed over
    fragments, and `clock` is the fleet's, in steps, at the last merge. `warning` is a sentence
    about what is wrong with the run now, `ending` is why it ends; "" if neither is so.
    """

    learners: dict[str, LearnerFigures] = field(default_factory=dict)
    gone: DepartedLearners = field(default_factory=DepartedLearners)
    away: dict[str, None] = field(default_factory=dict)
    most_present: int = 0
    merges: int = 0
    merged_tokens: int = 0
    evictions: int = 0
    clock: float = 0.0
    evaluations: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=POINTS_KEPT))
    losses: Curve = field(default_factory=Curve)
    speed: Speed = field(default_factory=Speed)
    work: WorkTime = field(default_factory=WorkTime)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    warning: str = ""
    ending: str = ""
    last_losses: dict[str, float] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Tokens that all learners have processed, as far as they have told."""
        return min(TOTAL_MAX, sum(learner.tokens for learner in self.everybody()))

    def everybody(self) -> Iterator[LearnerFigures]:
        """What all learners did that were ever here; those that are long gone are one of them."""
        yield from self.learners.values()
        yield self.gone.counted

    def came(self, name: str) -> LearnerFigures:
        """A learner was admitted; returns its row."""
        self.away.pop(name, None)
        row = self.learners.setdefault(name, LearnerFigures())
        self.most_present = max(self.most_present, len(self.learners) - len(self.away))
        return row

    def went(self, name: str) -> None:
        """A learner left, or was evicted; if many did, the oldest are counted together."""
        self.last_losses.pop(name, None)
        self.away.pop(name, None)
        self.away[name] = None
        while len(self.away) > max(AWAY_LEAST, self.most_present):
            oldest = next(iter(self.away))
            del self.away[oldest]
            self.gone.take(self.learners.pop(oldest))

    @property
    def gaps(self) -> GapHistogram:
        """Of all learners together."""
        every = GapHistogram()
        for learner in self.everybody():
            every.merge(learner.gaps.bins, learner.gaps.largest_s)
        return every

    @property
    def loss(self) -> float | None:
        """Mean over the learners that train now; None if there is none."""
        losses = self.last_losses.values()
        return sum(losses) / len(losses) if losses else None

    def take_loss(self, name: str) -> None:
        """A learner's smoothed loss is another one now, or it is away."""
        loss = self.learners[name].loss
        if loss is None or not isfinite(loss):
            self.last_losses.pop(name, None)
        else:
            self.last_losses[name] = loss

    def yield_of(self, fragments: int, tokens: int) -> float:
        """The share of tokens that has reached the published parameters by now.

        What is merged is heard of at once, and what learners did with their next heartbeat.
        """
        return min(1.0, self.merged_tokens / (fragments * tokens)) if tokens else 0.0


def _bounded(counts: Iterable[int]) -> int:
    return min(COUNT_MAX, sum(counts))


def drawable(value: float) -> bool:
    """Whether a value has a place on an axis: what has diverged has none."""
    return abs(value) <= LARGEST_DRAWN  # not so if it is no number


def in_order(name: str) -> tuple[str | int, ...]:
    """A key by which `learner-10` comes after `learner-2`: text and numbers take turns in it."""
    parts = re.split(r"([0-9]+)", name)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts))
