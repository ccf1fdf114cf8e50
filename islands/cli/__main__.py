"""`python -m islands.cli`, also installed as `islands`.

A user's mistake ends with one sentence and exit code 2; `--debug` shows the traceback instead.
"""

import argparse
import difflib
import os
import sys
from typing import Any

from islands.cli.command import main as run_command
from islands.cli.commands import COMMANDS, ROLES, imported
from islands.cli.parsing import Common
from islands.protocol.errors import OF_NO_USE

STARTED_APART = "syncer, supervisor, learner and observer start by python -m islands.<role>"


def parser() -> argparse.ArgumentParser:
    """Make the parser of options before the subcommand; it is used for its help text only."""
    lines = [f"  {name:16} {command.text}" for name, command in COMMANDS.items()]
    top = argparse.ArgumentParser(
        prog="islands",
        usage="islands [-h] [--version] COMMAND [options]",
        description="Train one model on islands of accelerators that never wait for each other.",
        epilog="commands:\n" + "\n".join(lines) + f"\n\n{STARTED_APART}",
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
        print(f"islands {_version()}")
        return 0
    print(f"islands: {_unknown(name)}", file=sys.stderr)
    return 2


def _version() -> str:
    """Return the version; a checkout that is on Python's path alone has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("islands")
    except PackageNotFoundError:
        return "of a checkout, which pip has not installed"


def _run(name: str, arguments: list[str]) -> int:
    command = COMMANDS[name]
    in_environment = any(variable.startswith(f"ISLANDS_{name.upper()}_") for variable in os.environ)
    if command.wants and not arguments and not in_environment:
        print(f"usage: islands {name} CONFIG [options]", file=sys.stderr)
        print(f"islands {name}: {command.wants}; --help lists the options", file=sys.stderr)
        return OF_NO_USE

    def entry(options: Any, common: Common) -> int:  # noqa: ANN401  (what `command.options` makes)
        code: int = imported(command.entry)(options, common)
        return code

    description = command.text[0].upper() + command.text[1:] + "."
    return run_command(
        entry, command.options, arguments, program=f"islands {name}", description=description
    )


def _unknown(name: str) -> str:
    if not name:
        return f"no command; it must be one of {', '.join(COMMANDS)}"
    if name in ROLES:
        return f"there is no command {name}; it starts by python -m islands.{name}"
    kinds = [command for command in COMMANDS if command.startswith(f"{name} ")]
    if kinds:
        return f"{name} needs a second word; the command must be one of {', '.join(kinds)}"
    near = difflib.get_close_matches(name, COMMANDS, 1)
    meant = f"; did you mean {near[0]}?" if near else f"; it must be one of {', '.join(COMMANDS)}"
    return f"there is no command {name}{meant}"


if __name__ == "__main__":
    sys.exit(main())
