"""Options of the commands that are no process of a run: one dataclass each.

Most read the folder of a run, which has ended or still goes on.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated

from islands.protocol.errors import SettingsError
from islands.protocol.invitations import DAYS_MAX, Invited, wrong_person
from islands.protocol.settings.addresses import hub_urls
from islands.protocol.settings.presets import Preset
from islands.protocol.settings.setting import Setting, make_choices, ranged
from islands.settings.groups import (
    DEFAULT_TASK,
    FLAT,
    POSITIONAL,
    ConnectOptions,
    RunFile,
)

SEED_MOST = 2**63 - 1
"""The largest seed that JAX takes."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """`islands check`: checks a task against its contract before a run.

    Args:
        file: what the run is.
        trace_only: only trace the task: compute no values, take no step, evaluate nothing.
    """

    file: RunFile = field(default_factory=RunFile, metadata=FLAT)
    trace_only: bool = False


@dataclass(frozen=True, slots=True)
@ranged
class DemoOptions:
    """`islands demo`: trains a small model on this machine; one learner is killed and returns.

    Args:
        tokens: budget of the run, in bytes of source read by all learners together.
        learners: how many learners share this machine.
        away_s: for how long the killed learner is away; choose more than its eviction takes.
        folder: folder of the run; by default a new one under runs/.
        seed: seed of the weights and of the data order.
        kill: whether a learner is killed; the same run without it shows the effect on the others.
        compare: whether data-parallel training on as many tokens follows, to compare the results;
            it takes about as long as the run.
    """

    tokens: Annotated[int, Setting(least=1)] = 1_000_000
    learners: Annotated[int, Setting(least=1)] = 3
    away_s: Annotated[float, Setting(least=0)] = 8.0
    folder: Path | None = None
    seed: Annotated[int, Setting(least=0)] = 0
    kill: bool = True
    compare: bool = False


@dataclass(frozen=True, slots=True)
@ranged
class TokenizeOptions:
    """`islands data tokenize`: turns text into tokens on disk, which a run then reads.

    Args:
        text: a folder of text, a pattern of files, or one file; `.jsonl` files hold lines of JSON.
            Or the folder of one dataset that `save_to_disk` of Hugging Face's `datasets` made.
        vocabulary: number of different tokens; 256 are the bytes themselves, and more are byte
            pairs, which are learned from the text.
        out: folder to make, for `path` of the task `islands.tasks.text:TextFiles`.
        json_field: field of a line of JSON, or column of a dataset, that holds the text.
        held_out: share of the documents that is never trained on.
    """

    text: str = field(default="", metadata=POSITIONAL)
    vocabulary: Annotated[int, Setting(least=256)] = 256
    out: Path = Path("tokens")
    json_field: str = "text"
    held_out: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise SettingsError(f"held_out is {self.held_out}; it is a share, from 0 to below 1")


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """`islands stop`, `pause`, `resume`: an operator's command to a run that goes on.

    Args:
        folder: folder of the run on the supervisor's host, which has its address, token and key.
        supervisor: address of the supervisor, if the run's folder is not here, in the form of a
            learner's.
        connecting: how to reach the supervisor.
        key_file: file with the run's key, if the run's folder is not here; none if the token is an
            operator's invitation.
    """

    folder: Path | None = None
    supervisor: tuple[str, ...] = ()
    connecting: ConnectOptions = field(default_factory=ConnectOptions, metadata=FLAT)
    key_file: Path | None = None

    def __post_init__(self) -> None:
        if self.folder is None and not self.supervisor:
            raise SettingsError(
                "neither folder nor supervisor is set; name the run's folder by --folder, or the "
                "address of its hub by --supervisor and the file of the run's key by --key_file"
            )
        invited = self.connecting.token_file is not None
        if self.folder is None and self.key_file is None and not invited:
            raise SettingsError(
                "key_file is not set; without the run's folder it is needed, or an operator's "
                "invitation as --token_file"
            )
        hub_urls("supervisor", self.supervisor, "supervisor")

    @property
    def supervisor_urls(self) -> tuple[str, ...]:
        """URLs of the supervisor; empty if the run's folder has its address."""
        return hub_urls("supervisor", self.supervisor, "supervisor", tls=self.connecting.tls)


@dataclass(frozen=True, slots=True)
class StatusOptions(OperatorOptions):
    """`islands status`: shows who takes part in a run.

    Args:
        json: whether to print one JSON object instead of a table.
    """

    json: bool = False


@dataclass(frozen=True, slots=True)
class RemoveOptions(OperatorOptions):
    """`islands drain`, `islands evict`: takes a learner out of a run.

    Args:
        name: name of the learner, as islands status lists it.
    """

    name: str = field(default="", metadata=POSITIONAL)

    def __post_init__(self) -> None:
        OperatorOptions.__post_init__(self)
        if not self.name:
            raise SettingsError("name is not set; name a learner, as islands status lists them")


@dataclass(frozen=True, slots=True)
class RevokeOptions(OperatorOptions):
    """`islands revoke`: ends all invitations of a person, and the sessions of who came by them.

    Args:
        name: the person's name, as islands invite was given it.
    """

    name: str = field(default="", metadata=POSITIONAL)

    def __post_init__(self) -> None:
        OperatorOptions.__post_init__(self)
        _person(self.name)


@dataclass(frozen=True, slots=True)
@ranged
class InviteOptions:
    """`islands invite`: writes an invitation, which a person uses in place of token and key.

    Args:
        name: the person's name; members that join by the invitation have names of their own.
        role: what the person may do: train as a learner, look on as an observer, or send commands
            as an operator.
        days: for how long the invitation is good.
        folder: folder of the run, on the supervisor's host.
        out: file to write; by default NAME.invitation.
    """

    name: str = field(default="", metadata=POSITIONAL)
    role: Invited = Invited.LEARNER
    days: Annotated[int, Setting(least=1, most=DAYS_MAX)] = 30
    folder: Path | None = None
    out: Path | None = None

    def __post_init__(self) -> None:
        named(self.folder)
        _person(self.name)


def _person(name: str) -> None:
    wrong = wrong_person(name)
    if wrong is not None:
        raise SettingsError(wrong)


@dataclass(frozen=True, slots=True)
class AddOptions(OperatorOptions):
    """`islands add`: adds learners to a run.

    Args:
        learners: how many, or of which entry of the table `islands`, as site or site:3.
    """

    learners: str = field(default="1", metadata=POSITIONAL)

    def __post_init__(self) -> None:
        OperatorOptions.__post_init__(self)
        if not re.fullmatch("[1-9][0-9]{0,3}", self._parts[1]):
            raise SettingsError(
                f"learners is {self.learners!r}; it must be a number, at least 1, or the name of "
                "an entry of islands, with or without a number: site:3"
            )

    @property
    def entry(self) -> str:
        """The entry of the table `islands` that is added to; empty for learners of the hub."""
        return self._parts[0]

    @property
    def count(self) -> int:
        return int(self._parts[1])

    @property
    def _parts(self) -> tuple[str, str]:
        entry, _, count = self.learners.partition(":")
        return (entry, count or "1") if re.match("[A-Za-z]", entry) else ("", self.learners)


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """`islands verify`: checks every byte that a run could be resumed from.

    Args:
        folder: folder of a run, or the path or URL of one checkpoint.
    """

    folder: str = field(default="", metadata=POSITIONAL)

    def __post_init__(self) -> None:
        if not self.folder:
            raise SettingsError("folder is not set; name the folder of a run, or of checkpoints")


@dataclass(frozen=True, slots=True)
class CheckpointsOptions(VerifyOptions):
    """`islands checkpoints`: lists the checkpoints of a run.

    Args:
        folder: folder of the run, or the folder or URL of checkpoints.
        json: whether to print one JSON object a line instead of a table.
    """

    json: bool = False


@dataclass(frozen=True, slots=True)
class PromoteOptions:
    """`islands promote`: has a standby on this host go on with the run.

    Args:
        folder: folder of the standby.
        key_file: file with the run's key; by default the one that the standby uses.
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    key_file: Path | None = None

    def __post_init__(self) -> None:
        named(self.folder)


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """`islands backup`: copies what a hub needs to go on elsewhere.

    Args:
        folder: folder of the run.
        out: folder to make, which `islands run --folder OUT --resume auto` goes on in.
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    out: Path = Path("backup")

    def __post_init__(self) -> None:
        named(self.folder)


@dataclass(frozen=True, slots=True)
class LogsOptions:
    """`islands logs`: prints what the processes of a run have written on their tapes.

    Args:
        folder: folder of the run.
        follow: whether to go on with what is written from now on, until Ctrl-C.
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    follow: bool = False

    def __post_init__(self) -> None:
        named(self.folder)


@dataclass(frozen=True, slots=True)
@ranged
class InitOptions:
    """`islands init`: writes a first YAML file of a run.

    Without an option it asks, on a terminal, for what matters.

    Args:
        file: the .yaml file to write.
        task: the task to train, as package.module:Class; by default a small decoder of bytes.
        learners: how many learners start on this machine.
        tokens: number of tokens after which the run ends; null = it runs until it is stopped.
        learning_rate: peak of the inner learning rate.
        preset: algorithm whose settings are the defaults; islands run --help lists them.
        listen: host:port at which learners of other hosts join; by default none can.
    """

    file: Path = field(default=Path("run.yaml"), metadata=POSITIONAL)
    task: str = DEFAULT_TASK
    learners: Annotated[int, Setting(least=0)] = 3
    tokens: Annotated[int | None, Setting(least=1)] = 1_000_000
    learning_rate: Annotated[float, Setting(above=0, below=inf)] = 3e-3
    preset: Preset = Preset.DECOUPLED
    listen: str | None = None

    def __post_init__(self) -> None:
        if self.file.suffix not in (".yaml", ".yml"):
            raise SettingsError(f"file is {self.file}; it must be a .yaml file to write")


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """A command that computes with the newest published values of a run.

    Args:
        folder: folder of the run.
        task: the task that computes, as package.module:Class; by default that of the run, if it is
            one that comes with islands.
        task_settings: arguments of the task that replace those of the run.
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    task: str | None = None
    task_settings: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named(self.folder)


@dataclass(frozen=True, slots=True)
class EvaluateOptions(ModelOptions):
    """`islands model evaluate`: evaluates the newest published values of a run.

    Args:
        json: whether to print one JSON object instead of lines for people.
    """

    json: bool = False


@dataclass(frozen=True, slots=True)
@ranged
class GenerateOptions(ModelOptions):
    """`islands model generate`: lets the newest published values of a run continue a text.

    Args:
        prompt: text to continue.
        count: how many tokens to add; those of the default task are bytes.
        temperature: temperature of the softmax; at 0 the likeliest token is taken each time.
        seed: seed of the sampling; equal seeds give equal texts.
    """

    prompt: str = ""
    count: Annotated[int, Setting(least=1)] = 200
    temperature: Annotated[float, Setting(least=0)] = 0.8
    seed: Annotated[int, Setting(least=0, most=SEED_MOST)] = 0

    def __post_init__(self) -> None:
        named(self.folder)
        if not self.prompt:
            raise SettingsError("prompt is empty; it must be a text to continue")


class ExportForm(StrEnum):
    """One file of safetensors, a folder of them with an index, or a checkpoint of Orbax."""

    FILE = "file"
    FOLDER = "folder"
    ORBAX = "orbax"


class ExportType(StrEnum):
    """The type of the exported values; `model`: of each the one that the learners have."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """`islands model export`: writes the newest published values of a run to a file or a folder.

    Args:
        folder: folder of the run.
        file: the .safetensors file to write; for the other forms the folder to make.
        form: one file; a folder with a file for each key at the top of the model's tree and an
            index; or a folder that Orbax reads as nested dictionaries.
        dtype: type of the values; model is that of the task's own.
        overwrite: whether to replace a file that exists.
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    file: Path | None = field(default=None, metadata=POSITIONAL)
    form: ExportForm = ExportForm.FILE
    dtype: ExportType = ExportType.FLOAT32
    overwrite: bool = False

    def __post_init__(self) -> None:
        make_choices(self)
        named(self.folder)
        one = self.form is ExportForm.FILE
        if self.file is None or (one and self.file.suffix != ".safetensors"):
            shown = "not set" if self.file is None else self.file
            must = "a .safetensors file to write" if one else "a folder to make"
            raise SettingsError(f"file is {shown}; it must be {must}")


class Over(StrEnum):
    """The quantity along the horizontal axis."""

    TOKENS = "tokens"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """`islands plot`: draws figures of one or several runs into one picture.

    Args:
        folders: folders of the runs.
        out: the .png or .svg file to write.
        figures: what is drawn: loss, evaluation, tokens_per_s, goodput, yield, participation,
            staleness, or any other figure of steps and merges that the runs have; by default loss
            and evaluation.
        metric: figure of the task's evaluation that is drawn; by default the first.
        over: what is along the horizontal axes.
    """

    folders: tuple[Path, ...] = field(default=(), metadata=POSITIONAL)
    out: Path = Path("runs.png")
    figures: tuple[str, ...] = ()
    metric: str | None = None
    over: tuple[Over, ...] = (Over.TOKENS, Over.TIME)

    def __post_init__(self) -> None:
        if not self.folders:
            raise SettingsError("folders is empty; name the folders of one or several runs")
        if self.out.suffix not in (".png", ".svg"):
            raise SettingsError(f"out is {self.out}; it must be a .png or .svg file to write")


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """`islands report`: writes the page of one or several runs into one file.

    Args:
        folders: folders of the runs.
        out: the .html file to write.
    """

    folders: tuple[Path, ...] = field(default=(), metadata=POSITIONAL)
    out: Path = Path("report.html")

    def __post_init__(self) -> None:
        if not self.folders:
            raise SettingsError("folders is empty; name the folders of one or several runs")
        if self.out.suffix != ".html":
            raise SettingsError(f"out is {self.out}; it must be a .html file to write")


@dataclass(frozen=True, slots=True)
class CostOptions:
    """`islands cost`: what a run has cost until now, by island and region.

    Args:
        folder: folder of the run.
        prices: YAML file of prices; without it hours, traffic and tokens are told alone.
        json: whether to print one JSON object with every island.
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    prices: Path | None = None
    json: bool = False

    def __post_init__(self) -> None:
        named(self.folder)


def named(folder: Path | None) -> Path:
    if folder is None:
        raise SettingsError("folder is not set; name the folder of a run, such as runs/mine")
    return folder
