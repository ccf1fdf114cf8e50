"""What is simulated: a fleet of so many chips in so many learners, and the figures that come of it.

Goodput is chip-time spent on steps over all chip-time, that of chips which are away included. Yield
is tokens that reached the published values over tokens processed, both within the measured time.
Uptime is the share of time in which at least one learner steps. A fleet is good only if goodput and
yield are both high.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import inf

from islands.lab.experiments.chips import Chips, Counted
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Link:
    """The network between a learner and the syncer.

    Attributes:
        latency_s: of one message.
        gbit_s: bandwidth of one learner, each way.
    """

    latency_s: float = 0.03
    gbit_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One fleet.

    Attributes:
        chips: of all learners together.
        learners: M; data-parallel training is one learner.
        each: the chips of each learner, and what a failure costs it.
        elastic: whether a learner goes on without the slices that failed.
        step_s: mean seconds of a step where nothing fails.
        noise: standard deviation of a step's time, as a share of the mean.
        speeds: by how many times the steps of each learner are longer; 1 for those not named.
        chip_tokens: tokens of one chip in a step.
        parameters: of the model, which the network carries.
        link: the network.
        links: the links of the learners, one after another; `link` for those not named.
        work_s: least and most seconds of one piece of work that is no step, such as a merge.
        settings: of the run.
        warmup_s: what comes before, from when all learners step, is not measured: no slice is away
            yet.
        measured_s: for how long the fleet is measured.
        seed: of all chance.
    """

    chips: float
    learners: int
    each: Chips
    elastic: bool = True
    step_s: float = 10.0
    noise: float = 0.0
    speeds: tuple[float, ...] = ()
    chip_tokens: float = 1024.0
    parameters: float = 1e9
    link: Link = field(default_factory=Link)
    links: tuple[Link, ...] = ()
    work_s: tuple[float, float] = (0.0005, 0.004)
    settings: RunSettings = field(default_factory=lambda: PRESETS[Preset.DECOUPLED_DILOCO])
    warmup_s: float = 1800.0
    measured_s: float = 6 * HOUR_S
    seed: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The learners' names."""
        return tuple(f"learner-{index:04}" for index in range(self.learners))

    @property
    def end_s(self) -> float:
        """When it has been measured."""
        return self.warmup_s + self.measured_s

    def speed(self, index: int) -> float:
        """By how many times the steps of a learner are longer."""
        return self.speeds[index] if index < len(self.speeds) else 1.0

    def link_of(self, index: int) -> Link:
        """The link of a learner."""
        return self.links[index] if index < len(self.links) else self.link


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of a fleet.

    Attributes:
        goodput: share of chip-time that was spent on steps.
        uptime: share of time in which at least one learner stepped.
        stalls_s: by learner, (start, end) of each time in which it took no step.
    """

    goodput: float
    uptime: float
    stalls_s: tuple[tuple[tuple[float, float], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Training:
    """What came of a fleet's training, as its syncer counted it.

    Attributes:
        yield_share: tokens that reached the published values over tokens processed, both within the
            measured time.
        merges_s: when each merge of the measured time was committed.
        participation: contributions per learner that was present, and per merge.
        per_merge: contributions per merge.
        chip_hours: for 10⁹ tokens that reached the published values.
        link_bytes: that all links carried, as large as they are for the model, for each token that
            reached the published values; 0 where one learner trains alone and needs none.
    """

    yield_share: float
    merges_s: tuple[float, ...]
    participation: float
    per_merge: float
    chip_hours: float
    link_bytes: float


@dataclass(frozen=True, slots=True)
class Played:
    """A fleet that was played, by the actors and by the event model alone."""

    cell: Cell
    figures: Figures
    training: Training
    plain: Figures


def steady(learners: int) -> Cell:
    """Return a fleet of so many learners whose chips never fail; each counts as one chip."""
    return Cell(float(learners), learners, Chips(1.0, mtbi_s=inf))


def figures_of(cell: Cell, counted: Sequence[Counted], start_s: float = 0.0) -> Figures:
    """Return what the chips of a fleet's learners were counted to do.

    Args:
        cell: the fleet.
        counted: of each learner's chips.
        start_s: when the learners began, from where times count.
    """
    stalls = [each.still for each in counted]
    still = reduce(overlaps, stalls)
    return Figures(
        goodput=sum(each.chip_s for each in counted) / (cell.chips * cell.measured_s),
        uptime=1.0 - sum(stop - start for start, stop in still) / cell.measured_s,
        stalls_s=tuple(
            tuple((start - start_s, stop - start_s) for start, stop in each) for each in stalls
        ),
    )


def overlaps(
    some: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return what two lists of intervals have in common; each is in order, without overlaps."""
    found: list[tuple[float, float]] = []
    i = j = 0
    while i < len(some) and j < len(others):
        start, stop = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if start < stop:
            found.append((start, stop))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found
