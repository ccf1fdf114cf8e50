"""`python -m islands.cli`, also installed as `islands`.

A user's mistake ends with one sentence and exit code 2; `--debug` before the subcommand shows the
traceback instead.
"""

import sys
from collections.abc import Callable

from jsonargparse import ArgumentParser

from islands.cli import demo
from islands.errors import IslandsError

COMMANDS: dict[str, tuple[Callable[..., int], str]] = {
    "demo": (demo.run, "train a small model on this machine; one learner drops out and returns"),
}


def parser() -> ArgumentParser:
    """The parser of all subcommands."""
    top = ArgumentParser(prog="islands", description="Decoupled DiLoCo training.")
    top.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = top.add_subcommands(required=True, dest="command")
    for name, (function, text) in COMMANDS.items():
        sub = ArgumentParser(description=text)
        sub.add_function_arguments(function, as_group=False)
        commands.add_subcommand(name, sub, help=text)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    found = parser().parse_args(arguments)
    command = found.command
    settings = parser().instantiate(found)[command]
    try:
        return COMMANDS[command][0](**settings)
    except IslandsError as error:
        if found.debug:
            raise
        print(f"islands: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
