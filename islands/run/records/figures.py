"""Figures of a run in progress: what its learners did, and the results so far.

They are shown to people; no decision depends on them, but that a run has diverged
(`islands/keeping/divergence.py`). Losses are smoothed per step, however many steps a report covers,
and the run's loss is the mean over its learners.

A run has one total of tokens: those processed, as the syncer's ledger has booked them. While the
run goes on it is the larger of what is booked and what learners reported; at the end the ledger
decides (`RunFigures.end`), and what learners reported beyond it is counted apart, as unbooked.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path

import msgspec
from msgspec import field

from islands.files.run_files import FIGURES_FILE, TAPE_FILE
from islands.files.whole_files import read_sealed, replace_file, sealed
from islands.protocol.errors import IslandsError
from islands.protocol.identities import Status
from islands.protocol.messages.control import COUNT_MAX, METRICS_MAX, TOTAL_MAX, StepFigures
from islands.protocol.running_statistics import DurationHistogram
from islands.protocol.syncer.ledger import Ledger

ABOUT = ("at_s", "clock", "tokens", "took_s")
"""Keys of an evaluation's row that are not figures of the task."""
BOARD_FOLDER = "tensorboard"
UNHEARD = "unheard"
"""The status of a learner that an earlier start of the hub knew, and this one has not heard."""
AWAY = "away"
"""The state in the picture of a learner that is not heard."""
STEP_ROW_INTERVAL_S = 1.0
LOSS_SMOOTHING = 0.05
"""Weight of one step's loss in the smoothed loss."""
POINTS_KEPT = 2048
LARGEST_DRAWN = 1e100
"""Larger values count as infinite, because sums of them could overflow."""
PROCESSES_KEPT = 3
"""Processes per name that are heard: one that was cut off may live on beside its successor."""
ENDED_KEPT = 64
"""Earlier processes per name that are remembered, so that their later reports are ignored."""
UNREPORTED = StepFigures("", 0, 0, 0.0, 0.0, None, 0.0, 0.0, (), 0.0, 0, 0)
AWAY_LEAST = 512
"""Absent learners that keep a row each, even if fewer than that were ever present at once."""
GONE_PROCESSES_KEPT = 4096
EVENTS_KEPT = 8
STATES_KEPT = 256
LATE_S = 1.0
"""By so much the clocks of a process and of its run may differ."""
LATELY_S = 60
"""Seconds over which participation is shown beside that of the whole run."""
SPEED_SAMPLES = 32
SPEED_WINDOW_S = 15.0
SPEED_SAMPLES_LEAST = 3
"""Least number of samples over which a speed is measured, because a step may take minutes."""


class LearnerFigures(msgspec.Struct):
    """What one learner did, over all its incarnations and processes.

    `processes` holds the last report of each process that was heard most recently, the latest last,
    and None for earlier ones, whose later reports are ignored. `loss` and `metrics` are smoothed
    since its last admission; `diverged` says that its last loss was not finite. Of the
    `merges_present` merges while it trained, `merges_joined` have a contribution of it, whose bases
    were `behind` versions behind, in sum. `states` has each change of its state with the seconds
    since the run's first start. `sends` is the precision that it chose last. It was a member
    for `present_s`, and again since `since_s` on the run's clock. `merged_tokens` are summed over
    fragments; only the end of the run merged `belated_tokens` of them. `unmerged` counts merges
    since the last one with it, while it is live. `left_out` says why it is not asked.
    """

    steps: int = 0
    tokens: int = 0
    incarnations: int = 0
    stepping_s: float = 0.0
    waited_s: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    loss: float | None = None
    step_time_s: float = 0.0
    status: str = "starting"
    diverged: bool = False
    smoothed_steps: int = 0
    row_s: float = -STEP_ROW_INTERVAL_S
    gaps: DurationHistogram = field(default_factory=DurationHistogram)
    processes: dict[str, StepFigures | None] = field(default_factory=dict)
    states: list[tuple[float, str]] = field(default_factory=list)
    sends: str = ""
    hardware: str = ""
    metrics: dict[str, float | None] = field(default_factory=dict)
    merges_present: int = 0
    merges_joined: int = 0
    behind: int = 0
    present_s: float = 0.0
    since_s: float | None = None
    merged_tokens: int = 0
    belated_tokens: int = 0
    unmerged: int = 0
    left_out: str = ""

    @property
    def tokens_per_s(self) -> float:
        """Its speed while it steps, by its last step."""
        step_s = self.step_time_s
        return self.tokens / max(1, self.steps) / step_s if step_s > 0 else 0.0

    @property
    def participation(self) -> float | None:
        """The fraction of merges while it trained that have a contribution of it."""
        return self.merges_joined / self.merges_present if self.merges_present else None

    @property
    def staleness(self) -> float | None:
        """How many versions behind the bases of its merged contributions were, on average."""
        return self.behind / self.merges_joined if self.merges_joined else None

    @property
    def gone(self) -> bool:
        """Whether it was evicted or has left, and has not come back."""
        return self.status in (Status.EVICTED, Status.LEFT)

    def enter(self, at_s: float, state: str) -> None:
        """Record a change of state; beyond `STATES_KEPT` changes the oldest are dropped."""
        if not self.states or self.states[-1][1] != state:
            self.states.append((at_s, state))
        if len(self.states) > STATES_KEPT:
            del self.states[: STATES_KEPT // 2]

    def join(self, at_s: float) -> None:
        self.since_s = at_s if self.since_s is None else self.since_s

    def leave(self, at_s: float) -> None:
        self.present_s, self.since_s = self.member_s(at_s), None

    def member_s(self, at_s: float) -> float:
        return self.present_s + (0.0 if self.since_s is None else max(0.0, at_s - self.since_s))

    def add_report(self, report: StepFigures, since_s: float) -> None:
        """Add a report of one of its processes, cumulative since that process began.

        One that began before these figures, which are `since_s` old, counts from its first report:
        what it did before is booked, or the run went back behind it.
        """
        last = self.processes.pop(report.process, UNREPORTED)
        lived_on = last is UNREPORTED and report.stepping_s > since_s + LATE_S
        if last is not None:
            if not lived_on:
                self.count(report, last)
            self.step_time_s = report.step_time_s if 0 <= report.step_time_s < inf else 0.0
            self.hardware = report.hardware
            # figures of the last steps are not summed, and may be NaN, which JSON cannot hold
            last = replace(
                report, loss=0.0, step_time_s=0.0, gap_s=0.0, data_wait_s=0.0, metrics=()
            )
        self.processes[report.process] = last
        ended = [*self.processes][:-PROCESSES_KEPT]
        self.processes.update(dict.fromkeys(ended))
        for forgotten in ended[:-ENDED_KEPT]:
            del self.processes[forgotten]

    def count(self, part: "LearnerFigures | StepFigures", before: StepFigures = UNREPORTED) -> None:
        """Add what a part did since it reported `before`, clamped to plausible bounds."""
        for name in ("steps", "tokens", "bytes_up", "bytes_down"):
            more = max(0, getattr(part, name) - getattr(before, name))
            setattr(self, name, _bounded(getattr(self, name) + more))
        for name in ("stepping_s", "waited_s"):
            more = getattr(part, name) - getattr(before, name)
            setattr(self, name, max(0.0, min(LARGEST_DRAWN, getattr(self, name) + more)))
        self.gaps.merge(((index, -count) for index, count in before.gap_bins), 0.0)
        self.gaps.merge(part.gap_bins, part.gap_largest_s)

    @property
    def gap_bins(self) -> tuple[tuple[int, int], ...]:
        return self.gaps.bins

    @property
    def gap_largest_s(self) -> float:
        return self.gaps.largest_s

    def settle(self, tokens: int) -> int:
        """Set the tokens to those that are booked; return how many more it had reported."""
        unbooked, self.tokens = max(0, self.tokens - tokens), tokens
        return unbooked

    def smooth(self, loss: float | None, metrics: Mapping[str, float]) -> bool:
        """Smooth in the means of steps since the last call; return whether there were any steps."""
        stepped, self.smoothed_steps = self.steps - self.smoothed_steps, self.steps
        if stepped <= 0:
            return False
        weight = 1 - (1 - LOSS_SMOOTHING) ** stepped
        if loss is not None:
            self.diverged = not isfinite(loss)
            self.loss = _smoothed(self.loss, loss, weight)
        for name, value in metrics.items():
            if name in self.metrics or len(self.metrics) < METRICS_MAX:
                self.metrics[name] = _smoothed(self.metrics.get(name), value, weight)
        return True


def _smoothed(before: float | None, value: float, weight: float) -> float:
    if before is None or not isfinite(before):
        return value
    return before + weight * (value - before)


class DepartedLearners(msgspec.Struct):
    """Learners that have been away for so long that they are counted together.

    Preemptible machines may come under a new name each time, for weeks. `processes` holds the
    newest of their processes; they are counted already, so later reports of theirs are ignored.
    """

    names: int = 0
    counted: LearnerFigures = field(default_factory=LearnerFigures)
    processes: dict[str, None] = field(default_factory=dict)

    def add(self, learner: LearnerFigures) -> None:
        self.names += 1
        self.counted.incarnations += learner.incarnations
        self.counted.present_s += learner.present_s
        self.counted.merged_tokens += learner.merged_tokens
        self.counted.count(learner)
        self.processes.update(dict.fromkeys(learner.processes))
        while len(self.processes) > GONE_PROCESSES_KEPT:
            del self.processes[next(iter(self.processes))]


class Curve(msgspec.Struct):
    """Points of a curve from its beginning; a long curve keeps only every second, fourth, … one.

    The last number of a point is its value, and those before it say where it is drawn.
    """

    points: list[tuple[float, ...]] = field(default_factory=list)
    newest: tuple[float, ...] | None = None
    every: int = 1
    waiting: int = 0

    def add(self, *point: float) -> None:
        """Append a point, if its value can be drawn."""
        if not drawable(point[-1]):
            return
        self.newest = point
        self.waiting += 1
        if self.waiting < self.every:
            return
        self.waiting = 0
        self.points.append(self.newest)
        if len(self.points) >= POINTS_KEPT:
            del self.points[1::2]  # the newest point goes too, so the next one is half-way due
            self.waiting = self.every
            self.every *= 2

    def all(self) -> list[tuple[float, ...]]:
        """Return the points that are kept, and the newest one."""
        last = [] if self.newest is None or self.newest in self.points[-1:] else [self.newest]
        return [*self.points, *last]


class Speed(msgspec.Struct):
    """The growth rate of a total, over the last seconds or over the last few increases."""

    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=SPEED_SAMPLES))

    def add(self, at_s: float, total: float) -> None:
        """Add a sample of the total; of samples within half a second, only the last is kept."""
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
        """Return the speed now; it decays while the total does not grow."""
        if len(self.samples) < 2:  # noqa: PLR2004  a difference takes two
            return 0.0
        (first_s, first), (last_s, last) = self.samples[0], self.samples[-1]
        overdue = now_s - last_s > 2 * (last_s - first_s) / (len(self.samples) - 1)
        until_s = now_s if overdue else last_s
        return (last - first) / max(1e-9, until_s - first_s)


class WorkTime(msgspec.Struct):
    """The seconds that count against a budget of time: those of work, without pauses.

    The current stretch of work began at `since_s`; those before it sum to `counted_s`.
    """

    counted_s: float = 0.0
    since_s: float | None = None
    paused: bool = False

    @property
    def begun(self) -> bool:
        """Whether a learner has stepped, in this start of the hub or in an earlier one."""
        return self.since_s is not None or self.counted_s > 0

    def begin(self, at_s: float) -> None:
        if self.since_s is None and not self.paused:
            self.since_s = at_s

    def pause(self, at_s: float, *, paused: bool) -> None:
        if paused and self.since_s is not None:
            self.counted_s, self.since_s = self.total_s(at_s), None
        elif not paused and self.paused:
            self.since_s = at_s
        self.paused = paused

    def total_s(self, now_s: float) -> float:
        return self.counted_s + (0.0 if self.since_s is None else now_s - self.since_s)


class KeptFigures(msgspec.Struct):
    """What the whole run did over all starts of its hub; its encoding is the file of figures.

    `away` holds the absent learners, the one that left last at the end. `evictions` counts members
    of all roles. `merged_tokens` is summed over fragments; `clock` is the fleet's in steps at the
    last merge. `booked` tokens are in the ledger, `unbooked` ones learners reported alone, and
    `settled_yield` is the ledger's at the end. The figures of processes began anew at `anew_s` on
    the run's clock, with this start: its folder had none, or it went back to a checkpoint. The file
    was written at `wall_s` on that clock and `kept_s` on the wall.
    """

    learners: dict[str, LearnerFigures] = field(default_factory=dict)
    gone: DepartedLearners = field(default_factory=DepartedLearners)
    away: dict[str, None] = field(default_factory=dict)
    most_present: int = 0
    merges: int = 0
    merged_tokens: int = 0
    booked: int = 0
    unbooked: int = 0
    settled_yield: float | None = None
    evictions: int = 0
    clock: float = 0.0
    evaluations: list[dict[str, float]] = field(default_factory=list)
    losses: Curve = field(default_factory=Curve)
    work: WorkTime = field(default_factory=WorkTime)
    anew_s: float | None = 0.0
    wall_s: float = 0.0
    kept_s: float = 0.0


class RunFigures(KeptFigures):
    """The figures of a run, with what is shown of this start of its hub alone.

    The last merge came `last_merge_s` after this start. `warning` says what is wrong with the run
    now, `ending` why it ends. `lately` has each of the last seconds with a merge, the contributions
    of its merges, and the learners that were present.
    """

    last_merge_s: float = -inf
    speed: Speed = field(default_factory=Speed)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    warning: str = ""
    ending: str = ""
    last_losses: dict[str, float] = field(default_factory=dict)
    lately: deque[list[float]] = field(default_factory=lambda: deque(maxlen=LATELY_S))

    @property
    def heard(self) -> int:
        """Tokens that the rows of all learners sum to."""
        return min(TOTAL_MAX, sum(learner.tokens for learner in self.everybody()))

    @property
    def tokens(self) -> int:
        return max(self.booked, self.heard)

    @property
    def metric(self) -> tuple[str, list[float]]:
        """Name and values of the first figure in the task's evaluations; "" if there is none."""
        rows = [{k: v for k, v in row.items() if k not in ABOUT} for row in self.evaluations]
        name = next((key for row in rows for key in row), "")
        return name, [row[name] for row in rows if name in row]

    def end(self, total: int, booked: Mapping[str, int]) -> None:
        """Settle at the run's end; what its processes report after that is ignored."""
        self.settle(total, booked)
        for learner in self.everybody():
            learner.processes = dict.fromkeys(learner.processes)

    def settle(self, total: int, booked: Mapping[str, int]) -> None:
        """Take over the ledger's tokens, in all and by name.

        Tokens of names that have no row are counted with those of the departed.
        """
        rest = total
        for name, learner in self.learners.items():
            self.unbooked += learner.settle(booked.get(name, 0))
            rest -= learner.tokens
        self.unbooked += self.gone.counted.settle(max(0, rest))
        self.booked = total

    def everybody(self) -> Iterator[LearnerFigures]:
        yield from self.learners.values()
        yield self.gone.counted

    def admit(self, name: str) -> LearnerFigures:
        self.away.pop(name, None)
        row = self.learners.setdefault(name, LearnerFigures())
        self.most_present = max(self.most_present, len(self.learners) - len(self.away))
        return row

    def depart(self, name: str) -> None:
        """Note that a learner left or was evicted; of many, the oldest are counted together."""
        self.last_losses.pop(name, None)
        self.away.pop(name, None)
        self.away[name] = None
        while len(self.away) > max(AWAY_LEAST, self.most_present):
            oldest = next(iter(self.away))
            del self.away[oldest]
            self.gone.add(self.learners.pop(oldest))

    @property
    def gaps(self) -> DurationHistogram:
        """The gaps between steps of all learners together."""
        every = DurationHistogram()
        for learner in self.everybody():
            every.merge(learner.gaps.bins, learner.gaps.largest_s)
        return every

    @property
    def loss(self) -> float | None:
        """Mean of the smoothed losses of the learners that train now; None if there is none."""
        losses = self.last_losses.values()
        return sum(losses) / len(losses) if losses else None

    @property
    def metrics(self) -> dict[str, float]:
        """Mean of each smoothed metric over the learners that report it now."""
        present = [one for one in self.learners.values() if not one.gone]
        found: dict[str, list[float]] = {}
        for name, value in (item for one in present for item in one.metrics.items()):
            if value is not None and isfinite(value):
                found.setdefault(name, []).append(value)
        return {name: sum(values) / len(values) for name, values in found.items()}

    def count_participation(self, at_s: float, contributions: int, learners: int) -> None:
        second = float(int(at_s))
        if not self.lately or self.lately[-1][0] != second:
            self.lately.append([second, 0, 0])
        self.lately[-1][1] += contributions
        self.lately[-1][2] += learners

    def participation_lately(self, at_s: float) -> float | None:
        """Return the fraction of learners in the merges of the last minute; None without one."""
        recent = [row for row in self.lately if row[0] >= at_s - LATELY_S]
        learners = sum(row[2] for row in recent)
        return sum(row[1] for row in recent) / learners if learners else None

    @property
    def participation(self) -> float | None:
        """The fraction of merges of the whole run in which learners that trained took part."""
        present = sum(one.merges_present for one in self.everybody())
        joined = sum(one.merges_joined for one in self.everybody())
        return joined / present if present else None

    def count_merge(
        self, behind: Mapping[str, int], tokens: Mapping[str, int], belated: Mapping[str, int]
    ) -> None:
        """Count a merge for the learners that train, and for those whose contributions it has.

        `behind` has how many versions each participant's base was behind, and `belated` those of
        its merged tokens that only the end of the run merged.
        """
        for name, learner in self.learners.items():
            joined = name in behind
            learner.merges_present += joined or learner.status == Status.LIVE
            learner.merges_joined += joined
            learner.unmerged = (
                0 if joined or learner.status != Status.LIVE else learner.unmerged + 1
            )
            learner.behind = _bounded(learner.behind + max(0, behind.get(name, 0)))
            merged = learner.merged_tokens + max(0, tokens.get(name, 0))
            learner.merged_tokens = min(TOTAL_MAX, merged)
            late = learner.belated_tokens + max(0, belated.get(name, 0))
            learner.belated_tokens = min(learner.merged_tokens, late)

    def update_loss(self, name: str) -> None:
        """Update the run's mean with a learner's smoothed loss, or drop the learner from it."""
        loss = self.learners[name].loss
        if loss is None or not isfinite(loss):
            self.last_losses.pop(name, None)
        else:
            self.last_losses[name] = loss

    @property
    def bytes_up(self) -> int:
        return sum(learner.bytes_up for learner in self.everybody())

    @property
    def bytes_down(self) -> int:
        return sum(learner.bytes_down for learner in self.everybody())

    def goodput(self, wall_s: float) -> float:
        """Return the time spent stepping over the time allocated: learners × wall time."""
        stepping_s = sum(each.stepping_s for each in self.everybody())
        return stepping_s / (max(1, len(self.learners) + self.gone.names) * max(wall_s, 1e-9))

    def yield_of(self, fragments: int, tokens: int) -> float:
        """Return the fraction of tokens that has reached the published parameters by now."""
        if self.settled_yield is not None:
            return self.settled_yield
        return min(1.0, self.merged_tokens / (fragments * tokens)) if tokens else 0.0


def _bounded(count: int) -> int:
    return max(0, min(COUNT_MAX, count))


def drawable(value: float) -> bool:
    """Return whether a value has a place on an axis: a diverged one has none."""
    return abs(value) <= LARGEST_DRAWN  # False for NaN


def in_order(name: str) -> tuple[str | int, ...]:
    """Return a sort key that puts `learner-10` after `learner-2`: text and numbers alternate."""
    parts = re.split(r"([0-9]+)", name)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts))


def content_of(figures: RunFigures, wall_s: float, at_s: float, now_s: float = 0.0) -> bytes:
    """Return the content of the file of figures.

    `wall_s` is on the run's clock, `at_s` since this start of the hub, and `now_s` on the wall.
    """
    evaluations = [{k: v for k, v in row.items() if isfinite(v)} for row in figures.evaluations]
    kept = msgspec.convert(figures, KeptFigures, from_attributes=True)
    kept.wall_s, kept.kept_s, kept.evaluations = wall_s, now_s, evaluations
    kept.work = WorkTime(figures.work.total_s(at_s))
    return sealed(msgspec.json.encode(kept))


def restored(path: Path) -> tuple[float, RunFigures, bool]:
    """Return the seconds and figures of earlier starts, and whether their record is lost.

    This start has heard nobody yet: whoever was present then counts as unheard.
    """
    figures, tape = RunFigures(), path / TAPE_FILE
    try:
        content = read_sealed(path / FIGURES_FILE)
        lost = content is None and tape.exists() and tape.stat().st_size > 0
        if content is not None:
            figures = msgspec.json.decode(content, type=RunFigures)
    except (IslandsError, msgspec.MsgspecError):  # figures are for people: a run goes on without
        lost = True
    if figures.anew_s != figures.wall_s:
        figures.anew_s = None
    for learner in figures.learners.values():
        learner.row_s = -STEP_ROW_INTERVAL_S
        if not learner.gone:
            learner.status = UNHEARD
            learner.enter(figures.wall_s, AWAY)
            learner.leave(figures.wall_s)
    return figures.wall_s, figures, lost


def gone_back(path: Path, merges: int, ledger: Ledger) -> None:
    """Take over a ledger to which the run in a folder has gone back, before its next start.

    Tokens that were processed since are in no book any more, so they count as unbooked.
    """
    wall_s, figures, _ = restored(path)
    figures.settle(ledger.processed, dict[str, int](ledger.by_name.items()))
    figures.anew_s = wall_s
    for learner in figures.everybody():
        learner.processes.clear()
        most = learner.tokens * len(ledger.totals)
        learner.merged_tokens = min(learner.merged_tokens, most)
        learner.belated_tokens = min(learner.belated_tokens, most)
    figures.merges, figures.merged_tokens = merges, min(TOTAL_MAX, ledger.applied)
    replace_file(path / FIGURES_FILE, content_of(figures, wall_s, 0.0, figures.kept_s))
