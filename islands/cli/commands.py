"""All commands in one table: the file of each, its options, and from where these are read.

A command's file is imported when the command runs, so that help answers at once. The laboratory is
imported here, for the options of its commands, and by the files of these commands alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from islands.lab.settings.chaos import ChaosOptions
from islands.lab.settings.fleets import (
    BandwidthOptions,
    GoodputOptions,
    GrowOptions,
    RegionsOptions,
    ScavengeOptions,
    UnevenOptions,
)
from islands.lab.settings.study import StudyOptions
from islands.settings.commands import (
    CheckOptions,
    ControlOptions,
    DemoOptions,
    EvaluateOptions,
    ExportOptions,
    GenerateOptions,
    LayoutOptions,
    PlotOptions,
    ReplayOptions,
    ReportOptions,
    TokenizeOptions,
)
from islands.settings.host import (
    LearnerOptions,
    ObserverOptions,
    RunOptions,
    SupervisorOptions,
    SyncerOptions,
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Args:
        options: the dataclass of its options.
        text: what it does, as a sentence without a full stop.
        entry: its function of options and `Common`, as module:function; empty of a role.
        wants: what a command line without a word leaves open; empty if it may be empty.
        has_file: whether its settings may stand in a YAML file (`--config`).
        takes_file: whether the file may also be named by its place (`CONFIG`).
        takes_task: whether a task, as package.module:factory, may stand there instead.
        shares_file: whether settings of the others that share one may stand in its file.
        plans: whether it has a dry run.
    """

    options: type
    text: str = ""
    entry: str = ""
    wants: str = ""
    has_file: bool = False
    takes_file: bool = False
    takes_task: bool = False
    shares_file: bool = False
    plans: bool = False


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "demo": Command(
            DemoOptions,
            "train a small model on this machine; one learner is killed and returns",
            "islands.cli.demo:run",
        ),
        "run": Command(
            RunOptions,
            "train on this machine what a YAML file says; learners of other hosts may join",
            "islands.cli.run:run",
            "name the YAML file of the run (CONFIG) or a task (--task); islands demo needs neither",
            has_file=True,
            takes_file=True,
            shares_file=True,
            plans=True,
        ),
        "check": Command(
            CheckOptions,
            "hold a task of your own against its contract, and tell the line that breaks it",
            "islands.cli.preparing:check",
            "name the task, as package.module:factory, or the YAML file of a run (CONFIG)",
            has_file=True,
            takes_file=True,
            takes_task=True,
            shares_file=True,
        ),
        "study": Command(
            StudyOptions,
            "compare settings at equal tokens on a virtual clock, as a YAML file says",
            "islands.cli.study:run",
            has_file=True,
            takes_file=True,
        ),
        "chaos": Command(
            ChaosOptions,
            "inject the faults of a YAML file into a run, and judge what came of it",
            "islands.cli.chaos:run",
            has_file=True,
            takes_file=True,
        ),
        "simulate goodput": Command(
            GoodputOptions,
            "tell what failing chips leave of a fleet's time, by the real actors on a virtual "
            "clock",
            "islands.cli.simulating:run",
        ),
        "simulate uneven": Command(
            UnevenOptions,
            "tell what waiting for slow learners costs, and what not waiting costs",
            "islands.cli.simulating:run",
        ),
        "simulate scavenge": Command(
            ScavengeOptions,
            "tell what compute that comes and goes saves of a run's time",
            "islands.cli.simulating:run",
        ),
        "simulate grow": Command(
            GrowOptions,
            "let one run's learners become many and few again, and judge its history",
            "islands.cli.simulating:run",
        ),
        "simulate regions": Command(
            RegionsOptions,
            "compare data-parallel and decoupled training over regions, by the speed of their "
            "links",
            "islands.cli.simulating:run",
        ),
        "simulate bandwidth": Command(
            BandwidthOptions,
            "find the link that a learner needs so as not to wait for it, preset by preset",
            "islands.cli.simulating:run",
        ),
        "tokenize": Command(
            TokenizeOptions,
            "turn text into tokens on disk, with a tokenizer that is trained on it",
            "islands.cli.preparing:tokenize",
        ),
        "layout": Command(
            LayoutOptions,
            "write which tensors a training loop of your own trains, for a hub to plan by",
            "islands.cli.preparing:layout",
        ),
        "control": Command(
            ControlOptions,
            "tell a run: status, drain NAME, evict NAME, add [COUNT], pause, resume, or stop",
            "islands.cli.control:run",
        ),
        "evaluate": Command(
            EvaluateOptions,
            "evaluate the newest values of a run, which has ended, was killed, or goes on",
            "islands.cli.newest_values:evaluate",
        ),
        "generate": Command(
            GenerateOptions,
            "let the newest values of a run continue a text",
            "islands.cli.newest_values:generate",
        ),
        "export": Command(
            ExportOptions,
            "write the newest values of a run to one file, also while the run goes on",
            "islands.cli.newest_values:export",
        ),
        "plot": Command(
            PlotOptions,
            "draw loss and evaluation of several runs, over tokens and over time",
            "islands.cli.plot:run",
        ),
        "report": Command(
            ReportOptions,
            "write the page of one or several runs to one file, for any browser",
            "islands.cli.report:run",
        ),
        "replay": Command(
            ReplayOptions,
            "redo a run's merges in float64 from what it recorded, and compare",
            "islands.cli.replay:run",
        ),
    }
)

ROLES: Mapping[str, Command] = MappingProxyType(
    {
        "syncer": Command(SyncerOptions, has_file=True, shares_file=True, plans=True),
        "supervisor": Command(SupervisorOptions, has_file=True, shares_file=True, plans=True),
        "learner": Command(LearnerOptions, has_file=True, plans=True),
        "observer": Command(ObserverOptions, has_file=True),
    }
)
"""What `python -m islands.<role>` starts."""

PROGRAMS: Mapping[str, Command] = MappingProxyType(
    {f"islands {name}": command for name, command in COMMANDS.items()}
    | {f"python -m islands.{name}": command for name, command in ROLES.items()}
)


def command_of(options_class: type) -> Command:
    """Return the command that has these options; one that reads no file, if there is none."""
    found = (command for command in PROGRAMS.values() if command.options is options_class)
    return next(found, Command(options_class))
