"""Options of `islands simulate goodput | uneven | regions | bandwidth | scavenge | grow`."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import Adoption
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.settings.setting import COUNT, NOT_NEGATIVE, POSITIVE, Setting, check_ranges
from islands.settings.groups import FLAT

LEARNERS_MOST = 4096
LEARNERS = Setting(least=1, most=LEARNERS_MOST)
CHIPS, SHARE = Setting(least=1, most=1_000_000_000), Setting(above=0, below=1)


class Published(StrEnum):
    """A table of figures that somebody published."""

    PAPER = "paper"


def patient() -> RunSettings:
    """Return settings whose timeouts suit steps of 10 s, which those of a run are too short for."""
    return replace(PRESETS[Preset.DECOUPLED_DILOCO], timing=Timing(patience=10.0))


@dataclass(frozen=True, slots=True)
class Playing:
    """Processes in which simulations are played, and the folder of their figures.

    Args:
        workers: runs that are played side by side, on one core each.
        folder: of the table, the figures as JSON, and the plot if there is one; null = nothing is
            written.
    """

    workers: Annotated[int, COUNT] = 2
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Raise a `SettingsError` with name, value and what is allowed."""
        check_ranges(self)


def check_unlike(seeds: tuple[int, ...]) -> None:
    """Refuse seeds of which two are alike, and none at all, by a `SettingsError`."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise SettingsError(f"seeds is {list(seeds)}; it must be unlike whole numbers")


@dataclass(frozen=True, slots=True)
class GoodputOptions:
    """`islands simulate goodput`: what is left of a fleet's chip-time when chips fail.

    The supervisor, the syncer and the learners are those of a real run, on a virtual clock; what
    they step on is chips that fail at random.

    Args:
        preset: algorithm whose settings are the defaults under `run`.
        run: settings of every fleet.
        chips: numbers of chips, all learners together; a column each.
        learners: numbers of learners, M; a row each. M = 1 is elastic data-parallel training.
        not_elastic: whether a row is added for one learner that starts all of its chips again.
        table: published table to compare with; it decides `chips`, `learners` and `not_elastic`.
        mtbi_days: mean days between the failures of one chip.
        slice_chips: chips that go and come back together.
        stall_s: seconds for which a failure stalls its learner, which goes on without the slice.
        return_s: seconds from a failure until its slice is ready again.
        rejoin_every_s: least seconds between two times at which a learner takes slices back.
        rejoin_stall_s: seconds for which that stalls it.
        restart_s: seconds that a failure costs a learner that is not elastic.
        step_s: seconds of a step where nothing fails.
        noise: standard deviation of a step's time, as a share of the mean.
        speeds: by how many times the steps of each learner are longer; 1 for those not named.
        chip_tokens: tokens that a chip processes in a step.
        parameters: of the model, whose fragments the links carry.
        gbit_s: bandwidth of each learner's link to the syncer, each way, in Gbit/s.
        latency_s: of one message, in seconds.
        warmup_h: hours that are not measured, as no slice is away at the start.
        hours: hours that are measured; null = 24 divided by M, and at least 2.
        seed: of all chance.
        workers: fleets that are played side by side, on one core each.
        folder: of the table, the figures as JSON, and the plots; null = nothing is written.
    """

    preset: Preset = Preset.DECOUPLED_DILOCO
    run: RunSettings = field(default_factory=patient)
    chips: Annotated[tuple[float, ...], CHIPS] = (150e3, 300e3, 600e3, 1.2e6, 2.4e6)
    learners: Annotated[tuple[int, ...], LEARNERS] = (1, 4, 16)
    not_elastic: bool = True
    table: Published | None = None
    mtbi_days: Annotated[float, POSITIVE] = 365.0
    slice_chips: Annotated[float, POSITIVE] = 256.0
    stall_s: Annotated[float, NOT_NEGATIVE] = 18.0
    return_s: Annotated[float, NOT_NEGATIVE] = 600.0
    rejoin_every_s: Annotated[float, NOT_NEGATIVE] = 300.0
    rejoin_stall_s: Annotated[float, NOT_NEGATIVE] = 16.0
    restart_s: Annotated[float, NOT_NEGATIVE] = 86.0
    step_s: Annotated[float, POSITIVE] = 10.0
    noise: Annotated[float, NOT_NEGATIVE] = 0.0
    speeds: Annotated[tuple[float, ...], POSITIVE] = ()
    chip_tokens: Annotated[float, POSITIVE] = 1024.0
    parameters: Annotated[float, POSITIVE] = 1e9
    gbit_s: Annotated[float, POSITIVE] = 5.0
    latency_s: Annotated[float, NOT_NEGATIVE] = 0.03
    warmup_h: Annotated[float, NOT_NEGATIVE] = 0.5
    hours: Annotated[float | None, POSITIVE] = None
    seed: Annotated[int, NOT_NEGATIVE] = 0
    workers: Annotated[int, COUNT] = 2
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Raise a `SettingsError` with name, value and what is allowed."""
        if not self.chips or not self.learners:
            raise SettingsError("chips and learners hold none; each needs a number at least")
        check_ranges(self)
        if min(self.chips) < max(self.learners):
            raise SettingsError(
                f"chips is {min(self.chips):g} and learners is {max(self.learners)}; each learner "
                "needs a chip at least"
            )


@dataclass(frozen=True, slots=True)
class UnevenOptions:
    """`islands simulate uneven`: learners of unlike speed, with and without waiting for the slow.

    Args:
        preset: algorithm whose settings are the defaults under `run`.
        run: settings of every run but that of the lock-step; quorum, grace and adoption are varied.
        speeds: by how many times the steps of each learner are longer; as many learners as numbers.
        noise: standard deviation of a step's time, as a share of the mean.
        step_s: mean seconds of a step at speed 1.
        steps: mean steps of a learner that are measured.
        parameters: of the model, whose fragments the links carry.
        gbit_s: bandwidth of each learner's link to the syncer, each way, in Gbit/s; by default that
            of one datacenter, so that a lock-step run waits for its slowest learner alone.
        latency_s: of one message, in seconds.
        seeds: of all chance; figures are means over the runs of all seeds.
        playing: processes and folder.
    """

    preset: Preset = Preset.DECOUPLED_DILOCO
    run: RunSettings = field(default_factory=patient)
    speeds: Annotated[tuple[float, ...], POSITIVE] = (1.0, 1.0, 1.0, 1.0, 1.18, 1.18, 1.18, 1.18)
    noise: Annotated[float, NOT_NEGATIVE] = 0.1
    step_s: Annotated[float, POSITIVE] = 10.0
    steps: Annotated[int, COUNT] = 240
    parameters: Annotated[float, POSITIVE] = 1e9
    gbit_s: Annotated[float, POSITIVE] = 10_000.0
    latency_s: Annotated[float, NOT_NEGATIVE] = 0.001
    seeds: Annotated[tuple[int, ...], NOT_NEGATIVE] = (0,)
    playing: Playing = field(default_factory=Playing, metadata=FLAT)

    def __post_init__(self) -> None:
        """Raise a `SettingsError` with name, value and what is allowed."""
        if not 1 < len(self.speeds) <= LEARNERS_MOST:
            raise SettingsError(
                f"speeds has {len(self.speeds)} learners; it must have from 2 to {LEARNERS_MOST}"
            )
        check_ranges(self)
        check_unlike(self.seeds)


def of_regions() -> RunSettings:
    """Return settings whose timeouts suit fragments that travel for seconds."""
    return replace(PRESETS[Preset.DECOUPLED_DILOCO], timing=Timing(patience=4.0))


@dataclass(frozen=True, slots=True)
class RegionsOptions:
    """`islands simulate regions`: one model over regions with narrow links between them.

    Args:
        preset: algorithm whose settings are the defaults under `run`.
        run: settings of the decoupled runs; their precisions are varied.
        latencies_s: seconds of one message between each region and the hub; a learner each.
        gbit_s: bandwidths that are tried, of every region's link to the hub, each way, in Gbit/s.
        parameters: of the model.
        step_s: seconds of a step.
        noise: standard deviation of a step's time, as a share of the mean.
        steps: steps that are measured.
        seeds: of all chance; figures are means over the runs of all seeds.
        playing: processes and folder.
    """

    preset: Preset = Preset.DECOUPLED_DILOCO
    run: RunSettings = field(default_factory=of_regions)
    latencies_s: Annotated[tuple[float, ...], NOT_NEGATIVE] = (0.06, 0.067, 0.073, 0.08)
    gbit_s: Annotated[tuple[float, ...], POSITIVE] = (1, 2, 3, 5, 10, 30, 100, 300, 1000, 3000)
    parameters: Annotated[float, POSITIVE] = 12e9
    step_s: Annotated[float, POSITIVE] = 4.0
    noise: Annotated[float, NOT_NEGATIVE] = 0.02
    steps: Annotated[int, COUNT] = 72
    seeds: Annotated[tuple[int, ...], NOT_NEGATIVE] = (0,)
    playing: Playing = field(default_factory=Playing, metadata=FLAT)

    def __post_init__(self) -> None:
        """Raise a `SettingsError` with name, value and what is allowed."""
        if not 1 < len(self.latencies_s) <= LEARNERS_MOST:
            raise SettingsError(
                f"latencies_s has {len(self.latencies_s)} regions; it must have from 2 to "
                f"{LEARNERS_MOST}"
            )
        if not self.gbit_s:
            raise SettingsError("gbit_s holds none; it needs a bandwidth at least")
        check_ranges(self)
        check_unlike(self.seeds)


@dataclass(frozen=True, slots=True)
class BandwidthOptions:
    """`islands simulate bandwidth`: the link that a learner needs so as not to wait for it.

    Args:
        parameters: of each model.
        step_s: seconds of a step of each model.
        fragments: P of Streaming DiLoCo for each model.
        interval_steps: H of DiLoCo and Streaming DiLoCo.
        utilisations: shares of what an unlimited link allows, above 0 and below 1.
        learners: how many learners, each with a link of its own.
        latency_s: of one message, in seconds.
        within: by what share the bandwidth that is found may be too high.
        only: rows whose names contain this.
        playing: processes and folder.
    """

    parameters: Annotated[tuple[float, ...], POSITIVE] = (1e9, 10e9, 100e9)
    step_s: Annotated[tuple[float, ...], POSITIVE] = (0.1, 0.8, 4.9)
    fragments: Annotated[tuple[int, ...], POSITIVE] = (8, 16, 36)
    interval_steps: Annotated[int, Setting(least=3)] = 100
    utilisations: Annotated[tuple[float, ...], Setting(above=0, below=1)] = (
        0.5,
        0.8,
        0.9,
        0.95,
        0.99,
    )
    learners: Annotated[int, Setting(least=2, most=LEARNERS_MOST)] = 2
    latency_s: Annotated[float, NOT_NEGATIVE] = 0.0
    within: Annotated[float, POSITIVE] = 0.1
    only: str | None = None
    playing: Playing = field(default_factory=Playing, metadata=FLAT)

    def __post_init__(self) -> None:
        """Raise a `SettingsError` with name, value and what is allowed."""
        if not len(self.parameters) == len(self.step_s) == len(self.fragments) > 0:
            raise SettingsError(
                f"parameters, step_s and fragments have {len(self.parameters)}, "
                f"{len(self.step_s)} and {len(self.fragments)} values; each needs one for each "
                "model"
            )
        if not self.utilisations:
            raise SettingsError("utilisations holds none; it needs a share at least")
        check_ranges(self)


def of_scavenging() -> RunSettings:
    """Return settings with which the work of overlapped steps is kept."""
    return replace(patient(), adoption=Adoption.DELAY_CORRECTED)


@dataclass(frozen=True, slots=True)
class ScavengeOptions:
    """`islands simulate scavenge`: compute that comes and goes, for a run of a token budget.

    The extra compute is there while a share of the budget is trained, not for a share of time: the
    published figures of decoupled runs are just those of half of the budget. Each extra unit is as
    large as a learner; it is taken away without warning, and another one comes after a while.

    Args:
        preset: algorithm whose settings are the defaults under `run`.
        run: settings of the decoupled runs.
        learners: M, of the compute that stays.
        extra: shares of that which come and go; each must be a whole number of learners.
        window: shares of the budget between which they are there.
        stay_s: mean seconds for which an extra unit stays.
        away_s: seconds until another one takes its place.
        stall_s: seconds for which a unit that is taken away stalls data-parallel training.
        rejoin_every_s: least seconds between two times at which data-parallel training takes units.
        rejoin_stall_s: seconds for which that stalls it.
        steps: steps of each learner that the budget is, without extra compute.
        step_s: seconds of a step.
        noise: standard deviation of a step's time, as a share of the mean.
        parameters: of the model.
        gbit_s: bandwidth of each learner's link to the syncer, each way, in Gbit/s.
        latency_s: of one message, in seconds.
        seeds: of all chance; figures are means over the runs of all seeds.
        playing: processes and folder.
    """

    preset: Preset = Preset.DECOUPLED_DILOCO
    run: RunSettings = field(default_factory=of_scavenging)
    learners: Annotated[int, LEARNERS] = 4
    extra: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0, 3.0)
    window: tuple[float, ...] = (0.25, 0.75)
    stay_s: Annotated[float, POSITIVE] = 600.0
    away_s: Annotated[float, NOT_NEGATIVE] = 20.0
    stall_s: Annotated[float, NOT_NEGATIVE] = 18.0
    rejoin_every_s: Annotated[float, NOT_NEGATIVE] = 300.0
    rejoin_stall_s: Annotated[float, NOT_NEGATIVE] = 16.0
    steps: Annotated[int, COUNT] = 480
    step_s: Annotated[float, POSITIVE] = 10.0
    noise: Annotated[float, NOT_NEGATIVE] = 0.02
    parameters: Annotated[float, POSITIVE] = 1e9
    gbit_s: Annotated[float, POSITIVE] = 20.0
    latency_s: Annotated[float, NOT_NEGATIVE] = 0.03
    seeds: Annotated[tuple[int, ...], NOT_NEGATIVE] = (0,)
    playing: Playing = field(default_factory=Playing, metadata=FLAT)

    def __post_init__(self) -> None:
        """Raise a `SettingsError` with name, value and what is allowed."""
        check_ranges(self)
        for share in self.extra:
            if share < 0 or not (share * self.learners).is_integer():
                raise SettingsError(
                    f"extra has {share:g} of {self.learners} learners; each must be a whole number "
                    "of learners"
                )
        ends = list(self.window)
        if len(ends) != 2 or not 0 <= ends[0] < ends[1] <= 1:  # noqa: PLR2004  a start and an end
            raise SettingsError(
                f"window is {ends}; it must be two shares of the budget from 0 to 1, in order"
            )
        check_unlike(self.seeds)

    @property
    def extras(self) -> dict[float, int]:
        """How many learners each share is."""
        return {share: round(share * self.learners) for share in self.extra}


def of_growth() -> RunSettings:
    """Return settings whose timeouts suit steps of a second."""
    return replace(PRESETS[Preset.DECOUPLED_DILOCO], timing=Timing(patience=2.0))


@dataclass(frozen=True, slots=True)
class GrowOptions:
    """`islands simulate grow`: one run whose learners become many, and few again, while it goes on.

    Args:
        preset: algorithm whose settings are the defaults under `run`.
        run: settings of the run.
        learners: how many are there at first and at last.
        most: how many are there in between.
        wave: how many come, or leave, at a time.
        wave_steps: mean steps between two waves.
        steady_steps: mean steps before the first wave, at the most learners, and after the last.
        abrupt: whether those who leave are killed, in place of saying so.
        step_s: seconds of a step.
        noise: standard deviation of a step's time, as a share of the mean.
        parameters: of the model.
        gbit_s: bandwidth of each learner's link to the syncer, each way, in Gbit/s.
        latency_s: of one message, in seconds.
        seed: of all chance.
        folder: of the table, the figures as JSON, and the plot; null = nothing is written.
    """

    preset: Preset = Preset.DECOUPLED_DILOCO
    run: RunSettings = field(default_factory=of_growth)
    learners: int = 10
    most: int = 100
    wave: Annotated[int, COUNT] = 10
    wave_steps: Annotated[int, COUNT] = 4
    steady_steps: Annotated[int, COUNT] = 24
    abrupt: bool = False
    step_s: Annotated[float, POSITIVE] = 2.0
    noise: Annotated[float, NOT_NEGATIVE] = 0.05
    parameters: Annotated[float, POSITIVE] = 1e9
    gbit_s: Annotated[float, POSITIVE] = 20.0
    latency_s: Annotated[float, NOT_NEGATIVE] = 0.03
    seed: Annotated[int, NOT_NEGATIVE] = 0
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Raise a `SettingsError` with name, value and what is allowed."""
        if not 1 <= self.learners < self.most <= LEARNERS_MOST:
            raise SettingsError(
                f"learners is {self.learners} and most is {self.most}; a run grows from 1 at least "
                f"to {LEARNERS_MOST} at most"
            )
        check_ranges(self)
