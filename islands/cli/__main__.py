"""`python -m islands.cli`, also installed as `islands`.

A user's mistake ends with one sentence and exit code 2; `--debug` shows the traceback instead. A
command's file is imported when the command runs, so that help answers at once.
"""

import argparse
import difflib
import importlib
import os
import sys
from dataclasses import dataclass
from typing import Any

from islands.cli.command import main as run_command
from islands.cli.parsing import Common
from islands.lab.settings.changing_fleets import GrowOptions, ScavengeOptions
from islands.lab.settings.chaos import ChaosOptions
from islands.lab.settings.goodput import GoodputOptions
from islands.lab.settings.simulations import BandwidthOptions, RegionsOptions, UnevenOptions
from islands.lab.settings.study import StudyOptions
from islands.protocol.errors import OF_NO_USE
from islands.settings.host import (
    CheckOptions,
    ControlOptions,
    DemoOptions,
    LayoutOptions,
    RunOptions,
)
from islands.settings.run_reading import (
    EvaluateOptions,
    ExportOptions,
    GenerateOptions,
    PlotOptions,
    ReplayOptions,
)
from islands.settings.text import TokenizeOptions


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand.

    Args:
        module: name of the module that holds its `run(options, common)`.
        options: the dataclass of its options.
        text: what it does, as a sentence without a full stop.
        wants: what a command line without a word leaves open; empty if it may be empty.
    """

    module: str
    options: type
    text: str
    wants: str = ""


COMMANDS: dict[str, Command] = {
    "demo": Command(
        "islands.cli.demo",
        DemoOptions,
        "train a small model on this machine; one learner is killed and returns",
    ),
    "run": Command(
        "islands.cli.run",
        RunOptions,
        "train on this machine what a YAML file says; learners of other hosts may join",
        "name the YAML file of the run (CONFIG) or a task (--task); islands demo needs neither",
    ),
    "check": Command(
        "islands.cli.check",
        CheckOptions,
        "hold a task of your own against its contract, and tell the line that breaks it",
        "name the task, as package.module:factory, or the YAML file of a run (CONFIG)",
    ),
    "study": Command(
        "islands.cli.study",
        StudyOptions,
        "compare settings at equal tokens on a virtual clock, as a YAML file says",
    ),
    "chaos": Command(
        "islands.cli.chaos",
        ChaosOptions,
        "inject the faults of a YAML file into a run, and judge what came of it",
    ),
    "simulate goodput": Command(
        "islands.cli.simulate_goodput",
        GoodputOptions,
        "tell what failing chips leave of a fleet's time, by the real actors on a virtual clock",
    ),
    "simulate uneven": Command(
        "islands.cli.simulate_uneven",
        UnevenOptions,
        "tell what waiting for slow learners costs, and what not waiting costs",
    ),
    "simulate scavenge": Command(
        "islands.cli.simulate_scavenge",
        ScavengeOptions,
        "tell what compute that comes and goes saves of a run's time",
    ),
    "simulate grow": Command(
        "islands.cli.simulate_grow",
        GrowOptions,
        "let one run's learners become many and few again, and judge its history",
    ),
    "simulate regions": Command(
        "islands.cli.simulate_regions",
        RegionsOptions,
        "compare data-parallel and decoupled training over regions, by the speed of their links",
    ),
    "simulate bandwidth": Command(
        "islands.cli.simulate_bandwidth",
        BandwidthOptions,
        "find the link that a learner needs so as not to wait for it, preset by preset",
    ),
    "tokenize": Command(
        "islands.cli.tokenizing",
        TokenizeOptions,
        "turn text into tokens on disk, with a tokenizer that is trained on it",
    ),
    "layout": Command(
        "islands.cli.layout",
        LayoutOptions,
        "write which tensors a training loop of your own trains, for a hub to plan by",
    ),
    "control": Command(
        "islands.cli.control",
        ControlOptions,
        "tell a run: status, drain NAME, evict NAME, add [COUNT], pause, resume, or stop",
    ),
    "evaluate": Command(
        "islands.cli.evaluate",
        EvaluateOptions,
        "evaluate the newest values of a run, which has ended, was killed, or goes on",
    ),
    "generate": Command(
        "islands.cli.generate",
        GenerateOptions,
        "let the newest values of a run continue a text",
    ),
    "export": Command(
        "islands.cli.export",
        ExportOptions,
        "write the newest values of a run to one file, also while the run goes on",
    ),
    "plot": Command(
        "islands.cli.plot",
        PlotOptions,
        "draw loss and evaluation of several runs, over tokens and over time",
    ),
    "replay": Command(
        "islands.cli.replay",
        ReplayOptions,
        "redo a run's merges in float64 from what it recorded, and compare",
    ),
}
ROLES = "syncer, supervisor, learner and observer start by python -m islands.<role>"


def parser() -> argparse.ArgumentParser:
    """Make the parser of options before the subcommand; it is used for its help text only."""
    lines = [f"  {name:16} {command.text}" for name, command in COMMANDS.items()]
    top = argparse.ArgumentParser(
        prog="islands",
        usage="islands [-h] [--version] COMMAND [options]",
        description="Train one model on islands of accelerators that never wait for each other.",
        epilog="commands:\n" + "\n".join(lines) + f"\n\n{ROLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=True,
    )
    top.add_argument("--version", action="store_true", help="say which version this is")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    debug = ["--debug"] * (given[:1] == ["--debug"])  # it is allowed before the subcommand as well
    given = given[len(debug) :]
    name = given[0] if given else ""
    for words in (2, 1):
        if " ".join(given[:words]) in COMMANDS:
            return _run(" ".join(given[:words]), [*given[words:], *debug])
    if name in ("-h", "--help"):
        print(parser().format_help(), end="")
        return 0
    if name == "--version":
        from importlib.metadata import version

        print(f"islands {version('islands')}")
        return 0
    print(f"islands: {_unknown(name)}", file=sys.stderr)
    return 2


def _run(name: str, arguments: list[str]) -> int:
    command = COMMANDS[name]
    told = any(variable.startswith(f"ISLANDS_{name.upper()}_") for variable in os.environ)
    if command.wants and not arguments and not told:
        print(f"usage: islands {name} CONFIG [options]", file=sys.stderr)
        print(f"islands {name}: {command.wants}; --help lists the options", file=sys.stderr)
        return OF_NO_USE

    def entry(options: Any, common: Common) -> int:  # noqa: ANN401  (what `command.options` makes)
        code: int = importlib.import_module(command.module).run(options, common)
        return code

    description = command.text[0].upper() + command.text[1:] + "."
    return run_command(
        entry, command.options, arguments, program=f"islands {name}", description=description
    )


def _unknown(name: str) -> str:
    if not name:
        return f"no command; it must be one of {', '.join(COMMANDS)}"
    if name in ("learner", "syncer", "supervisor", "observer"):
        return f"there is no command {name}; it starts by python -m islands.{name}"
    kinds = [command for command in COMMANDS if command.startswith(f"{name} ")]
    if kinds:
        return f"{name} needs a second word; the command must be one of {', '.join(kinds)}"
    near = difflib.get_close_matches(name, COMMANDS, 1)
    meant = f"; did you mean {near[0]}?" if near else f"; it must be one of {', '.join(COMMANDS)}"
    return f"there is no command {name}{meant}"


if __name__ == "__main__":
    sys.exit(main())
