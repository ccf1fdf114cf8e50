"""What a simulation of goodput is told: `islands simulate goodput`."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from islands.protocol.errors import SettingsError
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing
from islands.settings.groups import above, at_least

CHIPS_MOST, LEARNERS_MOST = 1e9, 4096


class Published(StrEnum):
    """A table of figures that somebody published."""

    PAPER = "paper"


def patient() -> RunSettings:
    """Return settings whose timeouts suit steps of 10 s, which those of a run are too short for."""
    return replace(PRESETS[Preset.DECOUPLED_DILOCO], timing=Timing(patience=10.0))


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
    chips: tuple[float, ...] = (150e3, 300e3, 600e3, 1.2e6, 2.4e6)
    learners: tuple[int, ...] = (1, 4, 16)
    not_elastic: bool = True
    table: Published | None = None
    mtbi_days: float = 365.0
    slice_chips: float = 256.0
    stall_s: float = 18.0
    return_s: float = 600.0
    rejoin_every_s: float = 300.0
    rejoin_stall_s: float = 16.0
    restart_s: float = 86.0
    step_s: float = 10.0
    noise: float = 0.0
    speeds: tuple[float, ...] = ()
    chip_tokens: float = 1024.0
    parameters: float = 1e9
    gbit_s: float = 5.0
    latency_s: float = 0.03
    warmup_h: float = 0.5
    hours: float | None = None
    seed: int = 0
    workers: int = 2
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        if not self.chips or not self.learners:
            raise SettingsError("chips and learners hold none; each needs a number at least")
        for chips in self.chips:
            if not 1 <= chips <= CHIPS_MOST:
                raise SettingsError(f"chips is {chips:g}; it must be from 1 to {CHIPS_MOST:g}")
        for learners in self.learners:
            if not 1 <= learners <= LEARNERS_MOST:
                raise SettingsError(f"learners is {learners}; it must be from 1 to {LEARNERS_MOST}")
        if min(self.chips) < max(self.learners):
            raise SettingsError(
                f"chips is {min(self.chips):g} and learners is {max(self.learners)}; each learner "
                "needs a chip at least"
            )
        for name in ("mtbi_days", "slice_chips", "step_s", "chip_tokens", "parameters", "gbit_s"):
            above(name, getattr(self, name))
        for name in ("stall_s", "return_s", "rejoin_every_s", "rejoin_stall_s", "restart_s"):
            at_least(name, getattr(self, name), 0)
        for name in ("noise", "latency_s", "warmup_h", "seed"):
            at_least(name, getattr(self, name), 0)
        for speed in self.speeds:
            above("speeds", speed)
        if self.hours is not None:
            above("hours", self.hours)
        at_least("workers", self.workers, 1)
