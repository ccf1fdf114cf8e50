"""`python -m islands.cli`, also installed as `islands`.

A user's mistake ends with one sentence and exit code 2; `--debug` shows the traceback instead.
"""

import difflib
import os
import sys

from islands.cli.command import main as run_command
from islands.cli.commands import COMMANDS, ROLES
from islands.protocol.errors import OF_NO_USE

WORDS_MOST = max(len(name.split()) for name in COMMANDS)


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    debug = ["--debug"] * (given[:1] == ["--debug"])  # it is allowed before the command as well
    given = given[len(debug) :]
    for words in range(WORDS_MOST, 0, -1):
        if " ".join(given[:words]) in COMMANDS:
            return _run(" ".join(given[:words]), [*given[words:], *debug])
    if given[:1] == ["--version"]:
        print(f"islands {_version()}")
        return 0
    if {"-h", "--help"} & {*given[:2]}:
        group = "".join(f"{word} " for word in given[:1] if not word.startswith("-"))
        if names := [name for name in COMMANDS if name.startswith(group)]:
            print(_help(names), end="")
            return 0
    print(f"islands: {_unknown(given)}", file=sys.stderr)
    return OF_NO_USE


def _help(names: list[str]) -> str:
    lines = [f"  {name:21} {COMMANDS[name].text}" for name in names]
    return "\n".join(
        [
            "usage: islands COMMAND [options]",
            "\nTrain one model on islands of accelerators that never wait for each other.",
            "\ncommands:",
            *lines,
            "\n--help after a command lists its options; islands --version tells which this is.",
            "Services start python -m islands.<role>: syncer, supervisor, learner, observer.\n",
        ]
    )


def _version() -> str:
    """Return the version; a checkout that is on Python's path alone has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("islands")
    except PackageNotFoundError:
        return "of a checkout, which pip has not installed"


def _run(name: str, arguments: list[str]) -> int:
    command = COMMANDS[name]
    in_environment = any(variable.startswith(f"{command.prefix}_") for variable in os.environ)
    if command.wants and not arguments and not in_environment:
        print(f"usage: islands {name} CONFIG [options]", file=sys.stderr)
        print(f"islands {name}: {command.wants}; --help lists the options", file=sys.stderr)
        return OF_NO_USE
    return run_command(
        command.run,
        command.options,
        arguments,
        program=f"islands {name}",
        description=f"{command.text[0].upper()}{command.text[1:]}.",
    )


def _unknown(given: list[str]) -> str:
    if not given:
        return "no command; islands --help lists them"
    group = [name for name in COMMANDS if name.startswith(f"{given[0]} ")]
    if group and len(given) == 1:
        return f"{given[0]} needs a second word; the command must be one of {', '.join(group)}"
    name = " ".join(given[: 2 if group else 1])
    if name in ROLES:
        return f"there is no command {name}; it starts by python -m islands.{name}"
    near = difflib.get_close_matches(name, group or COMMANDS, 1)
    meant = f"did you mean {near[0]}?" if near else "islands --help lists them"
    return f"there is no command {name}; {meant}"


if __name__ == "__main__":
    sys.exit(main())
