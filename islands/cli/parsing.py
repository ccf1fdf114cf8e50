"""A dataclass of options in; a parsed and checked instance out.

Who says something last has it: default, then YAML file, then environment, then command line. What
is wrong is one sentence that names the key, the value, and where it was said. Exit codes are those
of `islands.errors`, and 130 after Ctrl-C.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from islands.cli.schema import build, plain, put
from islands.cli.sources import Sources, refuse_secrets, with_underscores
from islands.errors import IslandsError, SettingsError, exit_code_of
from messaging.errors import LinkLost, LocalFault

Options = TypeVar("Options")

TASK_PATH = "ISLANDS_TASK_PATH"
"""Environment variable with further folders in which tasks are searched for."""


@dataclass(frozen=True, slots=True)
class Common:
    """What every command understands.

    Args:
        debug: show the traceback of an error.
        dry_run: say what would be done, and do nothing.
        step_time_s: seconds of one step, for the figures of a dry run; None if not known.
        config: the YAML files that were read.
    """

    debug: bool = False
    dry_run: bool = False
    step_time_s: float | None = None
    config: tuple[Path, ...] = ()


def parse(
    options_class: type[Options],
    arguments: list[str] | None,
    *,
    program: str,
    description: str,
) -> tuple[Options, Common]:
    """Read defaults, YAML files, environment and command line, the later before the earlier.

    Args:
        options_class: what is wanted.
        arguments: of the command line; those of this process if None.
        program: how the command is called; its last word names its environment variables.
        description: one sentence for the help.

    Raises:
        SettingsError: an option is unknown or has a value that cannot work.
        SystemExit: `--help` or `--print_config` was asked for and answered.
    """
    given = with_underscores(sys.argv[1:] if arguments is None else arguments)
    refuse_secrets(given)
    sources = Sources(options_class, program, description)
    line, flags = sources.read_line(given)  # answers --help
    files = sources.files(flags)
    values = {name: key.default for name, key in sources.keys.items()}
    for file in files:
        values |= sources.read_file(file)
    values |= sources.read_environment()
    for name, value in line.items():
        values = put(values, name, value, known=sources.keys)
    options: Options = build(options_class, values)
    if flags.get("print_config"):
        import yaml

        print(yaml.safe_dump(plain(options), sort_keys=False, allow_unicode=True), end="")
        raise SystemExit(0)
    step_time_s = flags.get("step_time_s")
    if step_time_s is not None and not step_time_s > 0:
        raise SettingsError(f"step_time_s is {step_time_s}; it must be above 0")
    return options, Common(flags["debug"], flags.get("dry_run", False), step_time_s, tuple(files))


def main(
    entry: Callable[[Options, Common], int],
    options_class: type[Options],
    arguments: list[str] | None = None,
    *,
    program: str,
    description: str,
) -> int:
    """Parse, run, and turn a user's mistake into one sentence; returns the exit code.

    The folder that the command was started in is searched for the user's task, then those of the
    YAML files that it reads; processes that it starts search them as well.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    search("", os.getcwd())  # noqa: PTH109  (compared with the texts of the path)
    try:
        options, common = parse(options_class, arguments, program=program, description=description)
        folders = [str(file.absolute().parent) for file in common.config]
        told = os.environ.get(TASK_PATH, "")
        os.environ[TASK_PATH] = os.pathsep.join(filter(None, [*folders, told]))
        for folder in os.environ[TASK_PATH].split(os.pathsep):
            search(folder, folder)
        if common.dry_run:
            from islands.cli.dry_run import dry_run

            return dry_run(options, common)
        return entry(options, common)
    except (IslandsError, LocalFault, LinkLost) as error:
        if "--debug" in arguments:
            raise
        if isinstance(error, IslandsError) and error.detail:
            print(
                error.detail, end="", file=sys.stderr
            )  # the sentence is last: launchers read it there
        print(f"{program}: {one_line(error)}", file=sys.stderr)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return 130


def search(folder: str, also_known_as: str) -> None:
    """Search a folder for modules, after all others, unless it is searched already."""
    if folder not in sys.path and also_known_as not in sys.path:
        sys.path.append(folder)


def one_line(error: BaseException) -> str:
    """An error as one line."""
    return " ".join(str(error).split())
