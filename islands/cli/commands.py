"""All commands in one table: the function of each, its options, and what these are read from.

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
        options_path: the dataclass of its options, as module:class.
        text: what it does, as a sentence without a full stop, in 56 characters.
        entry: its function of options and `Common`, as module:function; empty of a role.
        wants: what a command line without a word leaves open; empty if it may be empty.
        has_file: whether its settings may stand in a YAML file (`CONFIG`, `--config`).
        takes_task: whether a task, as package.module:Class, may stand in place of the file.
        shares_file: whether settings of the others that share one may stand in its file.
        plans: whether it has a dry run.
    """

    options_path: str
    text: str = ""
    entry: str = ""
    wants: str = ""
    has_file: bool = False
    takes_task: bool = False
    shares_file: bool = False
    plans: bool = False

    @property
    def options(self) -> type:
        options: type = imported(self.options_path)
        return options

    @property
    def prefix(self) -> str:
        """What the names of its environment variables begin with."""
        name = self.options_path.rpartition(":")[2].removesuffix("Options")
        return f"ISLANDS_{name.upper()}"


def imported(path: str) -> Any:  # noqa: ANN401  (a class or a function)
    """Return what a module holds; the path is module:name."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


OPERATOR = "islands.settings.commands:OperatorOptions"
REMOVE = "islands.settings.commands:RemoveOptions"

COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "demo": Command(
            "islands.settings.commands:DemoOptions",
            "train a small model here; a learner dies and returns",
            "islands.cli.demo:run",
        ),
        "init": Command(
            "islands.settings.commands:InitOptions",
            "write a first YAML file of a run",
            "islands.cli.init:run",
        ),
        "run": Command(
            "islands.settings.host:RunOptions",
            "train here what a YAML file says; others may join",
            "islands.cli.run:run",
            "name the YAML file of the run (CONFIG), which islands init writes, or a task (--task)",
            has_file=True,
            shares_file=True,
            plans=True,
        ),
        "join": Command(
            "islands.settings.host:LearnerOptions",
            "train on this host's devices as a learner of a run",
            "islands.learner.__main__:entry",
            has_file=True,
        ),
        "status": Command(
            "islands.settings.commands:StatusOptions",
            "show who takes part in a run, and how they are",
            "islands.cli.control:status",
        ),
        "add": Command(
            "islands.settings.commands:AddOptions",
            "add learners to a run, or islands of an entry",
            "islands.cli.control:add",
        ),
        "drain": Command(REMOVE, "let a learner leave a run in order", "islands.cli.control:drain"),
        "evict": Command(
            REMOVE, "take a learner that hangs out of a run", "islands.cli.control:evict"
        ),
        "pause": Command(
            OPERATOR, "let all learners stop at their next step", "islands.cli.control:pause"
        ),
        "resume": Command(OPERATOR, "let a paused run go on", "islands.cli.control:resume"),
        "stop": Command(
            OPERATOR, "end a run in order, with all merged", "islands.cli.control:stop"
        ),
        "logs": Command(
            "islands.settings.commands:LogsOptions",
            "print the tapes of a run's processes as one text",
            "islands.cli.logs:run",
        ),
        "report": Command(
            "islands.settings.commands:ReportOptions",
            "write the page of runs to one file, for any browser",
            "islands.cli.plot:report",
        ),
        "plot": Command(
            "islands.settings.commands:PlotOptions",
            "draw loss, evaluation, speed and other figures of runs",
            "islands.cli.plot:run",
        ),
        "cost": Command(
            "islands.settings.commands:CostOptions",
            "count what a run has cost, by island and region",
            "islands.cli.cost:run",
        ),
        "check": Command(
            "islands.settings.commands:CheckOptions",
            "check a task of your own, and name the line to mend",
            "islands.cli.preparing:check",
            "name the task, as package.module:Class, or the YAML file of a run (CONFIG)",
            has_file=True,
            takes_task=True,
            shares_file=True,
        ),
        "model evaluate": Command(
            "islands.settings.commands:EvaluateOptions",
            "evaluate the newest values of a run",
            "islands.cli.newest_values:evaluate",
        ),
        "model generate": Command(
            "islands.settings.commands:GenerateOptions",
            "let the newest values of a run continue a text",
            "islands.cli.newest_values:generate",
        ),
        "model export": Command(
            "islands.settings.commands:ExportOptions",
            "write the newest values of a run to one file",
            "islands.cli.newest_values:export",
        ),
        "data tokenize": Command(
            "islands.settings.commands:TokenizeOptions",
            "turn text into tokens on disk, with their tokenizer",
            "islands.cli.preparing:tokenize",
        ),
        "lab chaos": Command(
            "islands.lab.settings.chaos:ChaosOptions",
            "inject faults into a run, and judge what came of it",
            "islands.cli.chaos:run",
            has_file=True,
        ),
        "lab study": Command(
            "islands.lab.settings.study:StudyOptions",
            "compare settings at equal tokens on a virtual clock",
            "islands.cli.study:run",
            has_file=True,
        ),
        "lab simulate": Command(
            "islands.lab.settings.fleets:ComparisonOptions",
            "compare fleets of learners on a virtual clock",
            "islands.cli.simulating:run",
            "name the YAML file of the fleets (CONFIG), or lab simulate goodput",
            has_file=True,
        ),
        "lab simulate goodput": Command(
            "islands.lab.settings.fleets:GoodputOptions",
            "simulate what failing chips leave of a fleet's time",
            "islands.cli.simulating:run",
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
    path = f"{options_class.__module__}:{options_class.__name__}"
    found = (command for command in PROGRAMS.values() if command.options_path == path)
    return next(found, Command(path))
