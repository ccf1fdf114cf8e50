"""Options of the commands that read the folder of a run, which has ended or still goes on."""

from dataclasses import dataclass, field
from pathlib import Path

from islands.protocol.errors import SettingsError
from islands.protocol.settings.run import MergeRule
from islands.settings.groups import at_least
from islands.settings.host import POSITIONAL

SEED_MOST = 2**63 - 1
"""The largest seed that JAX takes."""


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """`islands evaluate`: evaluates the newest published values of a run.

    Args:
        folder: folder of the run.
        task: the task that evaluates, as package.module:factory; by default that of the run.
        task_settings: arguments of the task's factory that replace those of the run.
        json: whether to print one JSON object instead of lines for people.
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    task: str | None = None
    task_settings: dict[str, object] = field(default_factory=dict)
    json: bool = False

    def __post_init__(self) -> None:
        """Refuse to guess the run.

        Raises:
            SettingsError: no folder is named.
        """
        named(self.folder)


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """`islands generate`: lets the newest published values of a run continue a text.

    Args:
        folder: folder of the run.
        prompt: text to continue.
        count: how many tokens to add; those of the default task are bytes.
        temperature: temperature of the softmax; at 0 the likeliest token is taken each time.
        seed: seed of the sampling; equal seeds give equal texts.
        task: the task that samples, as package.module:factory; by default that of the run.
        task_settings: arguments of the task's factory that replace those of the run.
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    prompt: str = ""
    count: int = 200
    temperature: float = 0.8
    seed: int = 0
    task: str | None = None
    task_settings: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        named(self.folder)
        if not self.prompt:
            raise SettingsError("prompt is empty; it must be a text to continue")
        at_least("count", self.count, 1)
        at_least("temperature", self.temperature, 0)
        at_least("seed", self.seed, 0)
        if self.seed > SEED_MOST:
            raise SettingsError(f"seed is {self.seed}; it must be at most {SEED_MOST}")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """`islands export`: writes the newest published values of a run to one file.

    Args:
        folder: folder of the run.
        file: the .safetensors file to write.
        overwrite: whether to replace a file that exists.
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    file: Path | None = field(default=None, metadata=POSITIONAL)
    overwrite: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        named(self.folder)
        if self.file is None or self.file.suffix != ".safetensors":
            told = "not set" if self.file is None else self.file
            raise SettingsError(f"file is {told}; it must be a .safetensors file to write")


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """`islands plot`: draws the curves of one or several runs into one picture.

    Args:
        folders: folders of the runs.
        out: the .png or .svg file to write.
        metric: figure of the task's evaluation that is drawn; by default the first.
    """

    folders: tuple[Path, ...] = field(default=(), metadata=POSITIONAL)
    out: Path = Path("runs.png")
    metric: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        if not self.folders:
            raise SettingsError("folders is empty; name the folders of one or several runs")
        if self.out.suffix not in (".png", ".svg"):
            raise SettingsError(f"out is {self.out}; it must be a .png or .svg file to write")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """`islands replay`: redoes the merges of a run in float64 from what it recorded.

    Args:
        folder: folder of the run, which was started with --run.record_contributions.
        merges: how many merges are redone, from the first; by default all.
        merge: merge rule in place of the run's own, rda or average, to see by how much it would
            be off.
        json: whether to print one JSON object with every merge.
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    merges: int | None = None
    merge: MergeRule | None = None
    json: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        named(self.folder)
        if self.merges is not None:
            at_least("merges", self.merges, 1)


def named(folder: Path | None) -> Path:
    """Return the folder of the run.

    Raises:
        SettingsError: none is named.
    """
    if folder is None:
        raise SettingsError("folder is not set; name the folder of a run, such as runs/mine")
    return folder
