"""What simulations of fleets are told: `islands simulate uneven | regions | bandwidth`."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from islands.lab.settings.goodput import LEARNERS_MOST, patient
from islands.protocol.errors import SettingsError
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing
from islands.settings.groups import above, at_least
from islands.settings.host import FLAT


@dataclass(frozen=True, slots=True)
class Playing:
    """How simulations are played, and where their figures go.

    Args:
        workers: runs that are played side by side, on one core each.
        folder: of the table, the figures as JSON, and the plot if there is one; null = nothing is
            written.
    """

    workers: int = 2
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        at_least("workers", self.workers, 1)


def check_seeds(seeds: tuple[int, ...]) -> None:
    """Refuse seeds of which two are alike, and none at all.

    Raises:
        SettingsError: the seeds and what is allowed.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise SettingsError(f"seeds is {list(seeds)}; it must be unlike whole numbers")
    for seed in seeds:
        at_least("seeds", seed, 0)


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
    speeds: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.18, 1.18, 1.18, 1.18)
    noise: float = 0.1
    step_s: float = 10.0
    steps: int = 240
    parameters: float = 1e9
    gbit_s: float = 10_000.0
    latency_s: float = 0.001
    seeds: tuple[int, ...] = (0,)
    playing: Playing = field(default_factory=Playing, metadata=FLAT)

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        if not 1 < len(self.speeds) <= LEARNERS_MOST:
            raise SettingsError(
                f"speeds has {len(self.speeds)} learners; it must have from 2 to {LEARNERS_MOST}"
            )
        for speed in self.speeds:
            above("speeds", speed)
        for name in ("step_s", "parameters", "gbit_s"):
            above(name, getattr(self, name))
        at_least("noise", self.noise, 0)
        at_least("latency_s", self.latency_s, 0)
        at_least("steps", self.steps, 1)
        check_seeds(self.seeds)


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
    latencies_s: tuple[float, ...] = (0.06, 0.067, 0.073, 0.08)
    gbit_s: tuple[float, ...] = (1, 2, 3, 5, 10, 30, 100, 300, 1000, 3000)
    parameters: float = 12e9
    step_s: float = 4.0
    noise: float = 0.02
    steps: int = 72
    seeds: tuple[int, ...] = (0,)
    playing: Playing = field(default_factory=Playing, metadata=FLAT)

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        if not 1 < len(self.latencies_s) <= LEARNERS_MOST:
            raise SettingsError(
                f"latencies_s has {len(self.latencies_s)} regions; it must have from 2 to "
                f"{LEARNERS_MOST}"
            )
        for latency_s in self.latencies_s:
            at_least("latencies_s", latency_s, 0)
        if not self.gbit_s:
            raise SettingsError("gbit_s holds none; it needs a bandwidth at least")
        for gbit_s in self.gbit_s:
            above("gbit_s", gbit_s)
        for name in ("parameters", "step_s"):
            above(name, getattr(self, name))
        at_least("noise", self.noise, 0)
        at_least("steps", self.steps, 1)
        check_seeds(self.seeds)


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

    parameters: tuple[float, ...] = (1e9, 10e9, 100e9)
    step_s: tuple[float, ...] = (0.1, 0.8, 4.9)
    fragments: tuple[int, ...] = (8, 16, 36)
    interval_steps: int = 100
    utilisations: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95, 0.99)
    learners: int = 2
    latency_s: float = 0.0
    within: float = 0.1
    only: str | None = None
    playing: Playing = field(default_factory=Playing, metadata=FLAT)

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        if not len(self.parameters) == len(self.step_s) == len(self.fragments) > 0:
            raise SettingsError(
                f"parameters, step_s and fragments have {len(self.parameters)}, "
                f"{len(self.step_s)} and {len(self.fragments)} values; each needs one for each "
                "model"
            )
        for name in ("parameters", "step_s", "fragments"):
            for value in getattr(self, name):
                above(name, value)
        for share in self.utilisations:
            if not 0 < share < 1:
                raise SettingsError(f"utilisations has {share}; each must be above 0 and below 1")
        if not self.utilisations:
            raise SettingsError("utilisations holds none; it needs a share at least")
        if not 1 < self.learners <= LEARNERS_MOST:
            raise SettingsError(
                f"learners is {self.learners}; it must be from 2 to {LEARNERS_MOST}"
            )
        at_least("interval_steps", self.interval_steps, 3)
        at_least("latency_s", self.latency_s, 0)
        above("within", self.within)
