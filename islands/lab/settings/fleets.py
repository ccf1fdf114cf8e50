"""Options of `islands lab simulate FILE` and `islands lab simulate goodput`."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from islands.protocol.errors import SettingsError
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.settings.setting import COUNT, NOT_NEGATIVE, POSITIVE, Setting, check_ranges

LEARNERS_MOST = 4096
LEARNERS = Setting(least=1, most=LEARNERS_MOST)
CHIPS = Setting(least=1, most=1_000_000_000)


class Published(StrEnum):
    """A table of figures that somebody published."""

    PAPER = "paper"


def patient() -> RunSettings:
    """Return settings whose timeouts suit steps of 10 s, which those of a run are too short for."""
    return replace(PRESETS[Preset.DECOUPLED_DILOCO], timing=Timing(patience=10.0))


def check_unlike(seeds: tuple[int, ...]) -> None:
    """Refuse seeds of which two are alike, and none at all, by a `SettingsError`."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise SettingsError(f"seeds is {list(seeds)}; it must be unlike whole numbers")


@dataclass(frozen=True, slots=True)
class GoodputOptions:
    """`islands lab simulate goodput`: what is left of a fleet's chip-time when chips fail.

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
        if not self.chips or not self.learners:
            raise SettingsError("chips and learners hold none; each needs a number at least")
        check_ranges(self)
        if min(self.chips) < max(self.learners):
            raise SettingsError(
                f"chips is {min(self.chips):g} and learners is {max(self.learners)}; each learner "
                "needs a chip at least"
            )


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """`islands lab simulate FILE`: fleets of learners on a virtual clock, compared.

    Args:
        preset: algorithm whose settings are the defaults under `run`; a fleet may name its own.
        run: settings of every fleet.
        fleet: what holds for every fleet that does not say otherwise, in the keys of `fleets`.
        fleets: what is compared, by name. A fleet may set `learners` (a list of groups with
            `count`, `speed`, `gbit_s`, `latency_s`, `from_step`, `until_step`, `stay_steps`,
            `away_steps`, `abrupt`), `lock_step`, `preset`, `run`, `chips` (`count`, `slice_chips`,
            `mtbi_s`, `stall_s`, `return_s`, `rejoin_every_s`, `rejoin_stall_s`, `restart_s`),
            `elastic`, `step_s`, `noise`, `parameters`, `gbit_s`, `latency_s`, `warmup_steps`,
            `steps` and `sweep`.
        baseline: name of the fleet whose useful steps those of the others are divided by; where
            both are swept, at the same values.
        name: of the table's file, and of those of figures and plot.
        only: fleets whose names contain this.
        seeds: of all chance; figures are means over the runs of all seeds.
        workers: fleets that are played side by side, on one core each.
        folder: of the table, the figures as JSON, and the plot if there is one; null = nothing is
            written.
    """

    preset: Preset = Preset.DECOUPLED_DILOCO
    run: RunSettings = field(default_factory=patient)
    fleet: dict[str, object] = field(default_factory=dict)
    fleets: dict[str, object] = field(default_factory=dict)
    baseline: str | None = None
    name: str = "fleets"
    only: str | None = None
    seeds: Annotated[tuple[int, ...], NOT_NEGATIVE] = (0,)
    workers: Annotated[int, COUNT] = 2
    folder: Path | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        check_unlike(self.seeds)
