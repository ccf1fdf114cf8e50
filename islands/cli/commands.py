"""All commands in one table: the function of each, its options, and what these are read from.

A command's options are imported when it is chosen, its file when it runs. So help answers at once,
and the laboratory is imported by its own commands alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Args:
        options_path: the dataclass of its options: a class of `islands.settings.commands`, or
            module:class of this package.
        text: what it does, as a sentence without a full stop, in 56 characters.
        entry: its function of options and `Common`, as module:function; empty of a role. A module
            without a dot is one of `islands.cli`.
        wants: what a command line without a word leaves open; empty if it may be empty.
        has_file: whether its settings may stand in a YAML file (`CONFIG`, `--config`); a task, if
            it has one, may stand in the place of that, as package.module:Class.
        shares_file: whether settings of the others that share one may stand in its file.
        plans: whether it has a dry run.
    """

    options_path: str
    text: str = ""
    entry: str = ""
    wants: str = ""
    has_file: bool = False
    shares_file: bool = False
    plans: bool = False

    @property
    def options(self) -> type:
        module, _, name = self.options_path.rpartition(":")
        options: type = getattr(import_module(f"islands.{module or 'settings.commands'}"), name)
        return options

    @property
    def prefix(self) -> str:
        """What the names of its environment variables begin with."""
        name = self.options_path.rpartition(":")[2].removesuffix("Options")
        return f"ISLANDS_{name.upper()}"

    def run(self, options: object, common: object) -> int:
        """Run the command; return the exit code."""
        module, _, name = self.entry.partition(":")
        path = f"islands.{module}" if "." in module else f"islands.cli.{module}"
        code: int = getattr(import_module(path), name)(options, common)
        return code


OPERATOR = "OperatorOptions"
REMOVE = "RemoveOptions"

COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "demo": Command(
            "DemoOptions", "train a small model here; a learner dies and returns", "demo:run"
        ),
        "init": Command("InitOptions", "write a first YAML file of a run", "init:run"),
        "run": Command(
            "settings.host:RunOptions",
            "train here what a YAML file says; others may join",
            "run:run",
            "name the YAML file of the run (CONFIG), which islands init writes, or a task (--task)",
            has_file=True,
            shares_file=True,
            plans=True,
        ),
        "join": Command(
            "settings.host:LearnerOptions",
            "train on this host's devices as a learner of a run",
            "learner.__main__:entry",
            has_file=True,
        ),
        "status": Command(
            "StatusOptions", "show who takes part in a run, and how they are", "control:status"
        ),
        "add": Command(
            "AddOptions", "add learners to a run, or islands of an entry", "control:add"
        ),
        "drain": Command(REMOVE, "let a learner leave a run in order", "control:drain"),
        "evict": Command(REMOVE, "take a learner that hangs out of a run", "control:evict"),
        "pause": Command(OPERATOR, "let all learners stop at their next step", "control:pause"),
        "resume": Command(OPERATOR, "let a paused run go on", "control:resume"),
        "invite": Command(
            "InviteOptions", "write an invitation to a run, for one person", "invite:run"
        ),
        "revoke": Command(
            "RevokeOptions", "end the invitations of a person at once", "control:revoke"
        ),
        "stop": Command(OPERATOR, "end a run in order, with all merged", "control:stop"),
        "save": Command(OPERATOR, "take a checkpoint of a run as it is now", "control:save"),
        "checkpoints": Command(
            "CheckpointsOptions", "list what a run can go back to", "keeping:checkpoints"
        ),
        "verify": Command(
            "VerifyOptions", "check every byte that a run could resume from", "keeping:verify"
        ),
        "backup": Command(
            "BackupOptions", "copy what a hub needs to go on elsewhere", "keeping:backup"
        ),
        "promote": Command(
            "PromoteOptions", "have a standby of this host go on with its run", "keeping:promote"
        ),
        "logs": Command(
            "LogsOptions", "print the tapes of a run's processes as one text", "records:logs"
        ),
        "report": Command(
            "ReportOptions", "write the page of runs to one file, for any browser", "records:report"
        ),
        "plot": Command(
            "PlotOptions", "draw loss, evaluation, speed and other figures of runs", "records:plot"
        ),
        "cost": Command(
            "CostOptions", "count what a run has cost, by island and region", "cost:run"
        ),
        "check": Command(
            "CheckOptions",
            "check a task of your own, and name the line to mend",
            "preparing:check",
            "name the task, as package.module:Class, or the YAML file of a run (CONFIG)",
            has_file=True,
            shares_file=True,
        ),
        "model evaluate": Command(
            "EvaluateOptions", "evaluate the newest values of a run", "newest_values:evaluate"
        ),
        "model generate": Command(
            "GenerateOptions",
            "let the newest values of a run continue a text",
            "newest_values:generate",
        ),
        "model export": Command(
            "ExportOptions", "write the newest values of a run to files", "newest_values:export"
        ),
        "data tokenize": Command(
            "TokenizeOptions",
            "turn text into tokens on disk, with their tokenizer",
            "preparing:tokenize",
        ),
        "lab chaos": Command(
            "lab.settings.chaos:ChaosOptions",
            "inject faults into a run, and judge what came of it",
            "lab:chaos",
            has_file=True,
        ),
        "lab study": Command(
            "lab.settings.study:StudyOptions",
            "compare settings at equal tokens on a virtual clock",
            "lab:study",
            has_file=True,
        ),
        "lab simulate": Command(
            "lab.settings.fleets:ComparisonOptions",
            "compare fleets of learners on a virtual clock",
            "lab:simulate",
            "name the YAML file of the fleets (CONFIG), or lab simulate goodput",
            has_file=True,
        ),
        "lab simulate goodput": Command(
            "lab.settings.fleets:GoodputOptions",
            "simulate what failing chips leave of a fleet's time",
            "lab:simulate",
        ),
    }
)

ROLES: Mapping[str, Command] = MappingProxyType(
    {
        "syncer": Command(
            "settings.host:SyncerOptions", has_file=True, shares_file=True, plans=True
        ),
        "standby": Command("settings.host:StandbyOptions", has_file=True, shares_file=True),
        "supervisor": Command(
            "settings.host:SupervisorOptions", has_file=True, shares_file=True, plans=True
        ),
        "learner": Command("settings.host:LearnerOptions", has_file=True),
        "observer": Command("settings.host:ObserverOptions", has_file=True),
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
    path = path.removeprefix("islands.").removeprefix("settings.commands:")
    found = (command for command in PROGRAMS.values() if command.options_path == path)
    return next(found, Command(path))
