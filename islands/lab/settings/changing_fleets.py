"""What simulations of changing fleets are told: `islands simulate scavenge | grow`."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from islands.lab.settings.goodput import LEARNERS_MOST, patient
from islands.lab.settings.simulations import Playing, check_seeds
from islands.protocol.errors import SettingsError
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import Adoption, RunSettings, Timing
from islands.settings.groups import above, at_least
from islands.settings.host import FLAT


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
    learners: int = 4
    extra: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0, 3.0)
    window: tuple[float, ...] = (0.25, 0.75)
    stay_s: float = 600.0
    away_s: float = 20.0
    stall_s: float = 18.0
    rejoin_every_s: float = 300.0
    rejoin_stall_s: float = 16.0
    steps: int = 480
    step_s: float = 10.0
    noise: float = 0.02
    parameters: float = 1e9
    gbit_s: float = 20.0
    latency_s: float = 0.03
    seeds: tuple[int, ...] = (0,)
    playing: Playing = field(default_factory=Playing, metadata=FLAT)

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        if not 1 <= self.learners <= LEARNERS_MOST:
            raise SettingsError(
                f"learners is {self.learners}; it must be from 1 to {LEARNERS_MOST}"
            )
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
        for name in ("stay_s", "step_s", "parameters", "gbit_s"):
            above(name, getattr(self, name))
        for name in ("away_s", "stall_s", "rejoin_every_s", "rejoin_stall_s", "noise", "latency_s"):
            at_least(name, getattr(self, name), 0)
        at_least("steps", self.steps, 1)
        check_seeds(self.seeds)

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
    wave: int = 10
    wave_steps: int = 4
    steady_steps: int = 24
    abrupt: bool = False
    step_s: float = 2.0
    noise: float = 0.05
    parameters: float = 1e9
    gbit_s: float = 20.0
    latency_s: float = 0.03
    seed: int = 0
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        if not 1 <= self.learners < self.most <= LEARNERS_MOST:
            raise SettingsError(
                f"learners is {self.learners} and most is {self.most}; a run grows from 1 at least "
                f"to {LEARNERS_MOST} at most"
            )
        for name in ("wave", "wave_steps", "steady_steps"):
            at_least(name, getattr(self, name), 1)
        for name in ("step_s", "parameters", "gbit_s"):
            above(name, getattr(self, name))
        for name in ("noise", "latency_s", "seed"):
            at_least(name, getattr(self, name), 0)
