"""Parsing of a command's options: a dataclass goes in, a checked instance of it comes out.

A later source overrides an earlier one: defaults, then a preset, then YAML files, then environment,
then command line. An error is one sentence that names the key, the value, and its source.

One YAML file serves `islands run`, the syncer and the supervisor: a key in a file that this command
does not know is ignored if another of them knows it. On the command line it is refused.
"""

import argparse
import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from msgspec import ValidationError

from islands.cli import help_text
from islands.cli.commands import PROGRAMS, Command, command_of
from islands.cli.schema import Key, build, flatten, keys_of, plain
from islands.cli.yaml_file import NULL, read_yaml, scalar
from islands.protocol.errors import SettingsError
from islands.protocol.settings.presets import PRESETS, Preset, settings_of
from islands.settings.groups import put

Options = TypeVar("Options")

RUN = "run."
"""What the keys of the settings of a run begin with."""
ON_OFF = ("true", "false", "yes", "no")
FLAGS = ("CONFIG", "config", "print_config", "dry_run", "step_time_s", "debug")
SECRETS = ("token", "key", "password", "secret", "run_token", "run_key", "api_key")
# Kubernetes and the like set variables of this form for a service called islands-<role>.
SERVICE_VARIABLE = re.compile(r"_(SERVICE_(HOST|PORT)|PORT)(_|$)")


@dataclass(frozen=True, slots=True)
class Common:
    """The flags of commands, and from where their settings come.

    Args:
        dry_run: whether to say what a start would need and refuse, and start nothing.
        step_time_s: seconds of one step, for the figures of a dry run; None if not known.
        config: the YAML files that were read.
        given: keys of the settings that files, environment or command line give; None for all.
        words: the command line after the command's name.
    """

    dry_run: bool = False
    step_time_s: float | None = None
    config: tuple[Path, ...] = ()
    given: frozenset[str] | None = None
    words: tuple[str, ...] = ()


def parse(
    options_class: type[Options], arguments: list[str], *, program: str, description: str = ""
) -> tuple[Options, Common]:
    """Read defaults, YAML files, environment and command line; later ones override earlier ones."""
    given = _with_underscores(arguments)
    _refuse_secrets(given)
    sources = _Sources(options_class, program, description)
    line, flags = sources.read_line(given)  # answers --help
    files = sources.files(flags)
    layers = [*(sources.read_file(file) for file in files), sources.read_environment()]
    values = {name: key.default for name, key in sources.keys.items()}
    values |= _preset(values, [*layers, line])
    for layer in layers:
        values |= layer
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
    keys = frozenset().union(*layers, line)
    dry_run = flags.get("dry_run", False)
    return options, Common(dry_run, step_time_s, tuple(files), keys, tuple(arguments))


def _preset(defaults: Mapping[str, object], layers: list[dict[str, object]]) -> dict[str, object]:
    """Return the settings by key that the preset stands for; they override defaults alone.

    A default that is not that of the command's own preset is what the command needs, and stays.
    """
    if "preset" not in defaults:
        return {}
    own = PRESETS[Preset(str(defaults["preset"]))]
    given = {name: value for values in layers for name, value in values.items()}
    run = {name[len(RUN) :]: value for name, value in given.items() if name.startswith(RUN)}
    settings = settings_of(Preset(str(given.get("preset", defaults["preset"]))), run)
    return {
        name: attrgetter(name[len(RUN) :])(settings)
        for name, default in defaults.items()
        if name.startswith(RUN) and default == attrgetter(name[len(RUN) :])(own)
    }


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


class _Sources:
    """The keys and the parser of one command; each source is read into values by key."""

    def __init__(self, options_class: type, program: str, description: str) -> None:
        self.program, self.command = program, command_of(options_class)
        self.keys, self.prefix = keys_of(options_class), self.command.prefix
        self.options = [name for name, key in self.keys.items() if not key.positional]
        positional = ["CONFIG"] * self.command.has_file
        positional += [name for name, key in self.keys.items() if key.positional]
        self.parser = argparse.ArgumentParser(
            prog=program,
            description=description,
            usage=" ".join([program, *(f"[{name}]" for name in positional), "[options]"]),
            epilog=help_text.epilog(self.prefix, has_files=self.command.has_file),
            formatter_class=help_text.Formatter,
            allow_abbrev=False,
            add_help=False,
            exit_on_error=False,
        )
        if self.command.has_file:
            also = "; or a task, as --task" * ("task" in self.keys)
            self.parser.add_argument("CONFIG", nargs="?", help=f"YAML file, as --config{also}")
        self.advanced = help_text.add_keys(self.parser, self.keys, options_class)
        _add_flags(self.parser.add_argument_group("Every command"), self.command)

    # --- command line -------------------------------------------------------------------------

    def read_line(self, arguments: list[str]) -> tuple[dict[str, object], dict[str, Any]]:
        """Read the values of a command line by key, and the flags; print the help if asked for."""
        pairs = {" ".join(pair) for pair in pairwise(arguments)}
        if self.advanced and not pairs & {"-h all", "--help all"}:
            help_text.shorten(self.parser, self.advanced)
        mappings = tuple(f"--{key.name}." for key in self.keys.values() if key.is_mapping)
        for option in dict.fromkeys(argument.partition("=")[0] for argument in arguments):
            if option.startswith(mappings):  # the user chooses the keys of a mapping
                self.parser.add_argument(option, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        try:
            parsed, unknown = self.parser.parse_known_args(self._spelled_out(arguments))
        except argparse.ArgumentError as error:
            raise SettingsError(self._line_sentence(str(error))) from error
        if unknown:
            raise SettingsError(self._unknown(unknown))
        flags = {name: vars(parsed).pop(name) for name in FLAGS if name in parsed}
        named = flags.get("CONFIG") or ""
        if (
            "task" in self.keys
            and re.fullmatch(r"[\w.]+:[\w.]+", named)
            and not Path(named).exists()
        ):
            parsed.task, flags["CONFIG"] = flags["CONFIG"], None
        return {name: self._of_text(name, text) for name, text in vars(parsed).items()}, flags

    def _line_sentence(self, message: str) -> str:
        """Rephrase an error of argparse, with the allowed values of an option that has none."""
        message = message.removeprefix("argument ")
        name = message.removeprefix("--").removesuffix(": expected one argument")
        return f"--{name} needs a value: {self.keys[name].wanted}" if name in self.keys else message

    def _spelled_out(self, arguments: list[str]) -> list[str]:
        """Give a switch without a value the value true, whatever argument follows it."""
        switches = {f"--{name}" for name, key in self.keys.items() if key.kind is bool}
        return [
            f"{argument}=true" if argument in switches and after.lower() not in ON_OFF else argument
            for argument, after in pairwise([*arguments, ""])
        ]

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
        """Return whether a key, or the mapping that it is in, is of another reader of the file."""
        others = PROGRAMS.values() if self.command.shares_file else ()
        keys: dict[str, Key] = {}
        for other in others:
            keys |= keys_of(other.options) if other.shares_file else {}
        parents = [name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1)]
        return name in keys or any(each in keys and keys[each].is_mapping for each in parents)

    # --- environment --------------------------------------------------------------------------

    def read_environment(self) -> dict[str, object]:
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

    def _of_text(self, name: str, text: str | list[str], source: str = "") -> object:
        """Convert a text, or several, of the command line or the environment; null is a word."""
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
    same_end = sorted((each for each in names if each.rpartition(".")[2] == last), key=len)
    near = same_end[:1] or difflib.get_close_matches(name, names, 1, 0.7)
    if not near:
        ends = {each.rpartition(".")[2]: each for each in reversed(names)}
        near = [ends[end] for end in difflib.get_close_matches(last, ends, 1, 0.75)]
    return f"; did you mean {dashes}{near[0]}?" if near else ""


def _with_underscores(arguments: list[str]) -> list[str]:
    """Replace dashes in the names of options by underscores: `--dry-run` becomes `--dry_run`."""
    return [
        re.sub(r"(?<=^--)[^=]+", lambda name: name[0].replace("-", "_"), argument)
        for argument in arguments
    ]


def _refuse_secrets(arguments: list[str]) -> None:
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
        ).option_strings = ["--dry-run"]  # for the help; `_with_underscores` replaces its dash
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
