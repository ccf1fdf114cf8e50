"""The sources of settings: command line, environment and YAML files, each read and checked.

One YAML file serves `islands run`, the syncer and the supervisor: a key in a file that this command
does not know is ignored if another of them knows it. On the command line it is refused.
"""

import argparse
import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from msgspec import ValidationError

from islands.cli import help_text
from islands.cli.commands import PROGRAMS, Command, command_of
from islands.cli.schema import flatten, keys_of
from islands.cli.yaml_file import NULL, read_yaml, scalar
from islands.protocol.errors import SettingsError

FLAGS = ("CONFIG", "config", "print_config", "dry_run", "step_time_s", "debug")
SECRETS = ("token", "key", "password", "secret", "run_token", "run_key", "api_key")
# Kubernetes and the like set variables of this form for a service called islands-<role>.
SERVICE_VARIABLE = re.compile(r"_(SERVICE_(HOST|PORT)|PORT)(_|$)")


class Sources:
    """The keys and the parser of one command; each source is read into values by key."""

    def __init__(self, options_class: type, program: str, description: str) -> None:
        self.options_class, self.command = options_class, command_of(options_class)
        self.keys = keys_of(options_class)
        self.program = program
        self.prefix = self.command.prefix
        self.options = [name for name, key in self.keys.items() if not key.positional]
        positional = ["CONFIG"] * self.command.has_file
        positional += [name for name, key in self.keys.items() if key.positional]
        self.parser = _Parser(
            prog=program,
            description=description,
            usage=" ".join([program, *(f"[{name}]" for name in positional), "[options]"]),
            epilog=help_text.epilog(self.prefix, has_files=self.command.has_file),
            formatter_class=help_text.Formatter,
            allow_abbrev=False,
            add_help=False,
        )
        if self.command.has_file:
            also = "; or a task, as --task" if self.command.takes_task else ""
            self.parser.add_argument("CONFIG", nargs="?", help=f"YAML file, as --config{also}")
        self.advanced = help_text.add_keys(self.parser, self.keys, options_class)
        _add_flags(self.parser.add_argument_group("Every command"), self.command)

    # --- command line -------------------------------------------------------------------------

    def read_line(self, arguments: list[str]) -> tuple[dict[str, object], dict[str, Any]]:
        """Read the values of a command line by key, and the flags; print the help if asked for."""
        if self.advanced and not _asks_for_all(arguments):
            help_text.shorten(self.parser, self.advanced)
        mappings = tuple(f"--{key.name}." for key in self.keys.values() if key.is_mapping)
        for option in dict.fromkeys(argument.partition("=")[0] for argument in arguments):
            if option.startswith(mappings):  # the user chooses the keys of a mapping
                self.parser.add_argument(option, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        try:
            parsed, unknown = self.parser.parse_known_args(self._spelled_out(arguments))
        except SettingsError as error:
            raise SettingsError(self._line_sentence(str(error))) from error
        if unknown:
            raise SettingsError(self._unknown(unknown))
        flags = {name: vars(parsed).pop(name) for name in FLAGS if name in parsed}
        if self.command.takes_task and ":" in (flags["CONFIG"] or ""):
            parsed.task, flags["CONFIG"] = flags["CONFIG"], None
        values = {
            name: self._of_text(name, text)
            if isinstance(text, str)
            else self._value(name, text, "")
            for name, text in vars(parsed).items()
        }
        return values, flags

    def _line_sentence(self, message: str) -> str:
        """Rephrase an error of argparse, with the allowed values of an option that has none."""
        message = message.removeprefix("argument ")
        name = message.removeprefix("--").removesuffix(": expected one argument")
        return f"--{name} needs a value: {self.keys[name].wanted}" if name in self.keys else message

    def _spelled_out(self, arguments: list[str]) -> list[str]:
        """Give a switch without a value the value true, whatever argument follows it."""
        following = [*arguments, ""][1:]
        return [
            f"{argument}=true" if self._is_bare_switch(argument, after) else argument
            for argument, after in zip(arguments, following, strict=True)
        ]

    def _is_bare_switch(self, argument: str, after: str) -> bool:
        key = self.keys.get(argument.removeprefix("--"))
        known = key is not None and key.kind is bool and argument.startswith("--")
        return known and after.lower() not in ("true", "false", "yes", "no")

    def _unknown(self, words: list[str]) -> str:
        """Describe unknown arguments, without repeating a value that may be a secret."""
        option = next((word for word in words if word.startswith("--")), None)
        if option is None:
            hint = "options begin with --"
            if "folder" in self.options and not self.command.has_file:
                hint = f"the run's folder is named by --folder, and other {hint}"
            return f"unexpected argument {words[0]!r}; {hint}"
        name = option.partition("=")[0][2:]
        return f"unknown option --{name}{self._hint(name, '--')}"

    # --- files --------------------------------------------------------------------------------

    def files(self, flags: Mapping[str, Any]) -> list[Path]:
        """Return the YAML files in the order in which they are read."""
        names = [flags.get("CONFIG"), *(flags.get("config") or [])]
        given = [name for name in names if name is not None]
        return [Path(name) for name in given or [os.environ.get(f"{self.prefix}_CONFIG")] if name]

    def read_file(self, path: Path) -> dict[str, object]:
        """Read the values of a YAML file, by key."""
        values = {}
        for name, value in flatten(read_yaml(path), self.keys).items():
            if name.rpartition(".")[2] in SECRETS and name not in self.keys:
                raise SettingsError(
                    f"{path} holds {name}, a secret; keep it in a file of its own that only you "
                    "can read, and name that by token_file or key_file"
                )
            if name in self.keys:
                values[name] = self._value(name, value, f" in {path}")
            elif not self._elsewhere(name):
                raise SettingsError(f"unknown key {name} in {path}{self._hint(name)}")
        return values

    def _elsewhere(self, name: str) -> bool:
        """Return whether a key belongs to another command that reads the same file.

        Of a mapping there, whose keys are the user's own, it may be a key inside.
        """
        shared = PROGRAMS.values() if self.command.shares_file else ()
        known = [keys_of(other.options) for other in shared if other.shares_file]
        parents = [name.rsplit(".", count)[0] for count in range(name.count(".") + 1)]
        return any(
            parent in keys and (parent == name or keys[parent].is_mapping)
            for keys in known
            for parent in parents
        )

    # --- environment --------------------------------------------------------------------------

    def read_environment(self) -> dict[str, object]:
        """Read the values of environment variables, by key."""
        known = {f"{self.prefix}_{name.replace('.', '__').upper()}": name for name in self.options}
        for variable in sorted(os.environ):
            ours = variable.startswith(f"{self.prefix}_") and variable != f"{self.prefix}_CONFIG"
            service = SERVICE_VARIABLE.search(variable.removeprefix(self.prefix))
            if ours and variable not in known and not service:
                near = _nearest(variable, [*known, f"{self.prefix}_CONFIG"])
                raise SettingsError(f"unknown environment variable {variable}{near}")
        return {
            name: self._of_text(name, os.environ[variable], f" in {variable}")
            for variable, name in known.items()
            if variable in os.environ
        }

    # --- values -------------------------------------------------------------------------------

    def _of_text(self, name: str, text: str, source: str = "") -> object:
        """Convert a text of the command line or the environment, where null is a word."""
        if name not in self.keys:
            return scalar(str(text))  # it is a value inside a mapping
        null = text in NULL and self.keys[name].optional
        return self._value(name, None if null else text, source)

    def _value(self, name: str, given: object, source: str) -> object:
        key = self.keys[name]
        try:
            return key.convert(given)
        except ValidationError as error:
            shown = "null" if given is None else given if isinstance(given, str) else repr(given)
            shown = " ".join(shown.split())
            quotes = ", between quotes" if key.kind is str and given is not None else ""
            raise SettingsError(
                f"{name} is {shown}{source}; it must be {key.wanted}{quotes}"
            ) from error

    def _hint(self, name: str, dashes: str = "") -> str:
        here = any(key.rpartition(".")[2] == name.rpartition(".")[2] for key in self.options)
        for program, other in () if here else PROGRAMS.items():
            if other.has_file and other is not self.command and name in keys_of(other.options):
                return f"; {program} has it, {self.program} has not"
        return _nearest(name, self.options, dashes) or "; --help all lists what there is"


def _nearest(name: str, known: Iterable[str], dashes: str = "") -> str:
    """Return a question whether a similar name was meant; "" if no name is similar."""
    names = list(known)
    last = name.rpartition(".")[2]
    same_end = [each for each in names if each.rpartition(".")[2] == last]
    near = same_end[:1] or difflib.get_close_matches(name, names, 1, 0.7)
    if not near:
        ends = {each.rpartition(".")[2]: each for each in reversed(names)}
        near = [ends[end] for end in difflib.get_close_matches(last, ends, 1, 0.75)]
    return f"; did you mean {dashes}{near[0]}?" if near else ""


def with_underscores(arguments: list[str]) -> list[str]:
    """Replace dashes in the names of options by underscores: `--dry-run` becomes `--dry_run`."""
    spelled = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        spelled.append(f"{name}{equals}{value}")
    return spelled


def refuse_secrets(arguments: list[str]) -> None:
    """Refuse a secret on the command line, which every user of the machine can read."""
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--")
        if argument.startswith("--") and name in SECRETS:
            raise SettingsError(
                f"--{name} would show a secret to every user of this machine; name its file by "
                "--token_file or --key_file, or set ISLANDS_TOKEN"
            )


def _add_flags(group: argparse._ActionsContainer, command: Command) -> None:
    if command.has_file:
        group.add_argument(
            "--config", metavar="FILE", action="append", help="YAML file; of several, the last wins"
        )
        group.add_argument(
            "--print_config", action="store_true", help="print all settings as YAML, and end"
        )
    if command.plans:
        group.add_argument(
            "--dry_run",
            action="store_true",
            help="say what the run would need, and what would be refused; start nothing",
        ).option_strings = ["--dry-run"]  # for the help; `with_underscores` replaces its dash
        group.add_argument(
            "--step_time_s",
            metavar="SECONDS",
            type=float,
            help="of one step, for the figures of --dry_run; by default they are for 1 step/s",
        )
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    group.add_argument(
        "-h", "--help", action="help", help="show this text, and end; --help all shows every option"
    )


def _asks_for_all(arguments: list[str]) -> bool:
    """Return whether the help is to show every option, advanced ones too."""
    pairs = zip(arguments, [*arguments, ""][1:], strict=False)
    return any(word in ("-h", "--help") and after == "all" for word, after in pairs)


class _Parser(argparse.ArgumentParser):
    """A parser that raises an error instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)
