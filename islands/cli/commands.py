"""All commands in one table: the file of each, its options, and from where these are read.

A command's options are imported when it is chosen, its file when it runs. So help answers at once,
and the laboratory is imported by its own commands alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Args:
        options_place: the dataclass of its options, as module:class.
        text: what it does, as a sentence without a full stop.
        entry: its function of options and `Common`, as module:function; empty of a role.
        wants: what a command line without a word leaves open; empty if it may be empty.
        has_file: whether its settings may stand in a YAML file (`--config`).
        takes_file: whether the file may also be named by its place (`CONFIG`).
        takes_task: whether a task, as package.module:Class, may stand there instead.
        shares_file: whether settings of the others that share one may stand in its file.
        plans: whether it has a dry run.
    """

    options_place: str
    text: str = ""
    entry: str = ""
    wants: str = ""
    has_file: bool = False
    takes_file: bool = False
    takes_task: bool = False
    shares_file: bool = False
    plans: bool = False

    @property
    def options(self) -> type:
        options: type = imported(self.options_place)
        return options


def imported(place: str) -> Any:  # noqa: ANN401  (a class or a function)
    """Return what a module holds; the place is module:name."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "demo": Command(
            "islands.settings.commands:DemoOptions",
            "train a small model on this machine; one learner is killed and returns",
            "islands.cli.demo:run",
        ),
        "run": Command(
            "islands.settings.host:RunOptions",
            "train on this machine what a YAML file says; learners of other hosts may join",
            "islands.cli.run:run",
            "name the YAML file of the run (CONFIG) or a task (--task); islands demo needs neither",
            has_file=True,
            takes_file=True,
            shares_file=True,
            plans=True,
        ),
        "check": Command(
            "islands.settings.commands:CheckOptions",
            "hold a task of your own against its contract, and tell the line that breaks it",
            "islands.cli.preparing:check",
            "name the task, as package.module:Class, or the YAML file of a run (CONFIG)",
            has_file=True,
            takes_file=True,
            takes_task=True,
            shares_file=True,
        ),
        "study": Command(
            "islands.lab.settings.study:StudyOptions",
            "compare settings at equal tokens on a virtual clock, as a YAML file says",
            "islands.cli.study:run",
            has_file=True,
            takes_file=True,
        ),
        "chaos": Command(
            "islands.lab.settings.chaos:ChaosOptions",
            "inject the faults of a YAML file into a run, and judge what came of it",
            "islands.cli.chaos:run",
            has_file=True,
            takes_file=True,
        ),
        "simulate goodput": Command(
            "islands.lab.settings.fleets:GoodputOptions",
            "tell what failing chips leave of a fleet's time, by the real actors on a virtual "
            "clock",
            "islands.cli.simulating:run",
        ),
        "simulate": Command(
            "islands.lab.settings.fleets:ComparisonOptions",
            "compare fleets of learners on a virtual clock, as a YAML file says",
            "islands.cli.simulating:run",
            "name the YAML file of the fleets (CONFIG), or simulate goodput",
            has_file=True,
            takes_file=True,
        ),
        "tokenize": Command(
            "islands.settings.commands:TokenizeOptions",
            "turn text into tokens on disk, with a tokenizer that is trained on it",
            "islands.cli.preparing:tokenize",
        ),
        "control": Command(
            "islands.settings.commands:ControlOptions",
            "tell a run: status, drain NAME, evict NAME, add [COUNT], pause, resume, or stop",
            "islands.cli.control:run",
        ),
        "evaluate": Command(
            "islands.settings.commands:EvaluateOptions",
            "evaluate the newest values of a run, which has ended, was killed, or goes on",
            "islands.cli.newest_values:evaluate",
        ),
        "generate": Command(
            "islands.settings.commands:GenerateOptions",
            "let the newest values of a run continue a text",
            "islands.cli.newest_values:generate",
        ),
        "export": Command(
            "islands.settings.commands:ExportOptions",
            "write the newest values of a run to one file, also while the run goes on",
            "islands.cli.newest_values:export",
        ),
        "plot": Command(
            "islands.settings.commands:PlotOptions",
            "draw loss, evaluation, speed, goodput and other figures of runs",
            "islands.cli.plot:run",
        ),
        "report": Command(
            "islands.settings.commands:ReportOptions",
            "write the page of one or several runs to one file, for any browser",
            "islands.cli.report:run",
        ),
        "cost": Command(
            "islands.settings.commands:CostOptions",
            "tell what a run has cost, by island and region and for each million merged tokens",
            "islands.cli.cost:run",
        ),
    }
)

ROLES: Mapping[str, Command] = MappingProxyType(
    {
        "syncer": Command(
            "islands.settings.host:SyncerOptions", has_file=True, shares_file=True, plans=True
        ),
        "supervisor": Command(
            "islands.settings.host:SupervisorOptions", has_file=True, shares_file=True, plans=True
        ),
        "learner": Command("islands.settings.host:LearnerOptions", has_file=True),
        "observer": Command("islands.settings.host:ObserverOptions", has_file=True),
    }
)
"""What `python -m islands.<role>` starts."""

PROGRAMS: Mapping[str, Command] = MappingProxyType(
    {f"islands {name}": command for name, command in COMMANDS.items()}
    | {f"python -m islands.{name}": command for name, command in ROLES.items()}
)


def command_of(options_class: type) -> Command:
    """Return the command that has these options; one that reads no file, if there is none."""
    place = f"{options_class.__module__}:{options_class.__name__}"
    found = (command for command in PROGRAMS.values() if command.options_place == place)
    return next(found, Command(place))
