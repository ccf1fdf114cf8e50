"""Running one command, from its arguments to its exit code, also for the processes of the roles.

The exit code is one of `islands.protocol.errors`, or 130 after Ctrl-C.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import TypeVar

from islands.cli.parsing import Common, one_line, parse
from islands.protocol import errors
from islands.run.hosting.standard_streams import fitted, usable_streams
from islands.tasks.factory import TASK_PATH
from messaging.errors import LinkLost, LocalFault

Options = TypeVar("Options")


def main(
    entry: Callable[[Options, Common], int],
    options_class: type[Options],
    arguments: list[str] | None = None,
    *,
    program: str,
    description: str,
) -> int:
    """Parse the arguments and run a command; return the exit code.

    An error that the user can correct is printed as one sentence. The user's task is searched for
    in the folder that the command was started in, then in the folders of the YAML files that it
    reads; processes that it starts search them as well.
    """
    if os.getpid() == 1:  # the first process of a container would ignore it
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    arguments = sys.argv[1:] if arguments is None else arguments
    with usable_streams():
        return _main(entry, options_class, arguments, program, description)


def _main(
    entry: Callable[[Options, Common], int],
    options_class: type[Options],
    arguments: list[str],
    program: str,
    description: str,
) -> int:
    search("", os.getcwd())  # noqa: PTH109  (compared with the texts of the path)
    try:
        options, common = parse(options_class, arguments, program=program, description=description)
        folders = [str(file.absolute().parent) for file in common.config]
        inherited = os.environ.get(TASK_PATH, "")
        os.environ[TASK_PATH] = os.pathsep.join(filter(None, [*folders, inherited]))
        for folder in os.environ[TASK_PATH].split(os.pathsep):
            search(folder, folder)
        return (_dry_run if common.dry_run else entry)(options, common)
    except (errors.IslandsError, LocalFault, LinkLost) as error:
        if "--debug" in arguments:
            raise
        if isinstance(error, errors.IslandsError) and error.detail:
            # The sentence comes last, because launchers read the last line.
            print(error.detail, end="", file=sys.stderr)
        print(fitted(f"{program}: {one_line(error)}", sys.stderr), file=sys.stderr)
        return errors.exit_code_of(error)
    except ModuleNotFoundError as error:
        package = errors.missing_package(error)
        if package is None or "--debug" in arguments:
            raise
        sentence = f"{program}: {errors.not_installed('this', package)}"
        print(fitted(sentence, sys.stderr), file=sys.stderr)
        return errors.OF_NO_USE
    except KeyboardInterrupt:
        return 130


def _dry_run(options: object, common: Common) -> int:
    """Show the findings; return 0, 2 if a start would be refused, 1 if a larger host is needed."""
    from islands.cli.dry_run import examine, show

    findings = examine(options, common)
    show(findings)
    if findings.refused:
        return errors.OF_NO_USE
    return errors.FAILED if findings.too_small else errors.DONE


def search(folder: str, also_known_as: str) -> None:
    """Append a folder to the module search path, unless it is on the path under either name."""
    if folder not in sys.path and also_known_as not in sys.path:
        sys.path.append(folder)
