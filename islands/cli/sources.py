"""The sources of settings: command line, environment, YAML files; each read, checked, and told.

One YAML file serves `islands run`, the syncer and the supervisor: a key of a file that this command
does not know and one of the other two does is passed over. On the command line it is refused.
"""

import argparse
import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from jsonargparse import ArgumentParser

from islands.cli import help_text
from islands.cli.schema import flatten, keys_of, nest
from islands.cli.yaml_file import read_yaml
from islands.errors import SettingsError
from islands.settings.host import (
    CheckOptions,
    LearnerOptions,
    ObserverOptions,
    RunOptions,
    SupervisorOptions,
    SyncerOptions,
)

SHARE_A_FILE = (RunOptions, SyncerOptions, SupervisorOptions, CheckOptions)
HAVE_A_FILE = (*SHARE_A_FILE, LearnerOptions, ObserverOptions)
PLANNED = (RunOptions, SyncerOptions, SupervisorOptions, LearnerOptions)
SECRETS = ("token", "key", "password", "secret", "run_token", "run_key", "api_key")
FLAG_ERROR = re.compile(r"argument --(\w+): (.*)", re.DOTALL)
# What an orchestrator puts into the environment for a service called islands-<role>.
SERVICE_VARIABLE = re.compile(r"_(SERVICE_(HOST|PORT)|PORT)(_|$)")


class Sources:
    """One command's keys and parser, and the sources read so far."""

    def __init__(self, options_class: type, program: str, description: str) -> None:
        self.options_class = options_class
        self.keys = keys_of(options_class)
        self.program = program
        self.prefix = "ISLANDS_" + re.split(r"[ .]", program)[-1].upper()
        self.flags = _flags(options_class)
        self.parser = _Refusing(
            prog=program,
            description=description,
            usage=help_text.usage(program, self._places()),
            epilog=help_text.epilog(self.prefix, has_files=options_class in HAVE_A_FILE),
            formatter_class=help_text.Formatter,
            exit_on_error=False,
            default_env=True,
            env_prefix=self.prefix,
            allow_abbrev=False,
        )
        if self._takes_a_file:
            told = "YAML file, as --config" + "; or a task, as --task" * self._takes_a_task
            self.parser.add_argument("CONFIG", nargs="?", help=told)
        help_text.add_keys(self.parser, self.keys, options_class, program)
        _add_flags(self.parser.add_argument_group("Every command"), options_class, "-")

    def _places(self) -> list[str]:
        """What is given by its place."""
        names = ["CONFIG"] if self._takes_a_file else []
        return names + [name for name, key in self.keys.items() if key.positional]

    @property
    def _takes_a_file(self) -> bool:
        return self.options_class in (RunOptions, CheckOptions)

    @property
    def _takes_a_task(self) -> bool:
        return self.options_class is CheckOptions

    # --- command line -------------------------------------------------------------------------

    def spelled_out(self, arguments: list[str]) -> list[str]:
        """A switch without a value is switched on, whatever stands behind it."""
        following = [*arguments, ""][1:]
        return [
            f"{argument}=true" if self._is_bare_switch(argument, after) else argument
            for argument, after in zip(arguments, following, strict=True)
        ]

    def _is_bare_switch(self, argument: str, after: str) -> bool:
        key = self.keys.get(argument.removeprefix("--"))
        known = key is not None and key.kind is bool and argument.startswith("--")
        return known and after.lower() not in ("true", "false", "yes", "no")

    def read_line(self, arguments: list[str], *, environment: bool = False) -> dict[str, object]:
        """All values by key, with what the command line says on top of what was read before."""
        try:
            found = self.parser.parse_args(arguments, env=environment)
        except (argparse.ArgumentError, SettingsError) as error:
            raise SettingsError(self._line_sentence(str(error))) from error
        self._positional = found.CONFIG if self._takes_a_file else None
        if self._takes_a_task and ":" in (self._positional or ""):
            found.task, self._positional = self._positional, None
        return {name: key.convert(found[name]) for name, key in self.keys.items()}

    def _line_sentence(self, told: str) -> str:
        """What is wrong with the command line; no value is repeated that may be a secret."""
        if told.startswith("unrecognized arguments:"):
            words = told.partition(":")[2].split()
            unknown = next((word for word in words if word.startswith("--")), None)
            if unknown is None:
                return f"unexpected argument {words[0]!r}; options begin with --"
            name = unknown.partition("=")[0][2:]
            return f"unknown option --{name}{self._hint(name, '--')}"
        if "expected one argument" in told:
            named = re.search(r"argument (--\S+?)[:,/]", told)
            name = named[1][2:] if named else ""
            wanted = f": {self.keys[name].wanted}" if name in self.keys else ""
            return f"--{name} needs a value{wanted}"
        return self._value_sentence(told, "")

    # --- files --------------------------------------------------------------------------------

    def files(self, named: list[str]) -> list[Path]:
        """The YAML files in the order in which they are read."""
        positional = [self._positional] if self._positional else []
        from_environment = os.environ.get(f"{self.prefix}_CONFIG", "")
        told = [*positional, *named] or [from_environment] * bool(from_environment)
        return [Path(name) for name in told]

    def read_file(self, path: Path) -> None:
        """Take a YAML file's values as the new defaults."""
        values = {}
        for name, value in flatten(read_yaml(path), self.keys).items():
            if name.rpartition(".")[2] in SECRETS and name not in self.keys:
                raise SettingsError(
                    f"{path} holds {name}, a secret; keep it in a file of its own that only you "
                    "can read, and name that by token_file or key_file"
                )
            if name in self.keys:
                values[name] = value
            elif not self._elsewhere(name):
                raise SettingsError(f"unknown key {name} in {path}{self._hint(name)}")
        for name, value in values.items():
            if value is None and not self.keys[name].optional:
                raise SettingsError(
                    f"{name} is null in {path}; it must be {self.keys[name].wanted}"
                )
        try:
            found = self.parser.parse_object(nest(values), env=False, defaults=False)
        except (argparse.ArgumentError, SettingsError) as error:
            raise SettingsError(self._value_sentence(str(error), f" in {path}", values)) from error
        self.parser.set_defaults({name: found[name] for name in values})

    def _elsewhere(self, name: str) -> bool:
        """Whether a key is one of another command that reads the same file."""
        shared = SHARE_A_FILE if self.options_class in SHARE_A_FILE else ()
        return any(name in keys_of(other) for other in shared)

    # --- environment --------------------------------------------------------------------------

    def read_environment(self) -> None:
        """Check what the environment says; it is taken with the command line."""
        known = {self._variable(name): name for name in self.keys}
        known[f"{self.prefix}_CONFIG"] = "config"
        for variable in sorted(os.environ):
            ours = variable.startswith(f"{self.prefix}_") and variable not in known
            if ours and not SERVICE_VARIABLE.search(variable.removeprefix(self.prefix)):
                near = _nearest(variable, known)
                raise SettingsError(f"unknown environment variable {variable}{near}")
        try:
            self.parser.parse_env(defaults=False)
        except (argparse.ArgumentError, SettingsError) as error:
            named = re.search(r'key "([^"]+)"', str(error))
            place = f" in {self._variable(named[1])}" if named else " in the environment"
            raise SettingsError(self._value_sentence(str(error), place)) from error

    def _variable(self, name: str) -> str:
        return f"{self.prefix}_{name.replace('.', '__').upper()}"

    # --- sentences ----------------------------------------------------------------------------

    def _value_sentence(
        self, told: str, place: str, values: Mapping[str, object] | None = None
    ) -> str:
        named = re.search(r'key "([^"]+)"', told)
        key = self.keys.get(named[1]) if named else None
        if key is None:
            return " ".join(told.split()) + place
        got = re.search(r"(?:Got|Given) value: (.*)", told, re.DOTALL)
        value = values[key.name] if values is not None else (got[1] if got else "of another kind")
        quotes = ", between quotes" if key.kind is str and values is not None else ""
        shown = value if isinstance(value, str) else repr(value)
        return f"{key.name} is {shown}{place}; it must be {key.wanted}{quotes}"

    def _hint(self, name: str, dashes: str = "") -> str:
        near = _nearest(name, self.keys, dashes)
        for other in () if near else HAVE_A_FILE:
            if name in keys_of(other) and other is not self.options_class:
                return f"; {help_text.CALLED[other]} has it, {self.program} has not"
        return near or "; --help lists what there is"


def _nearest(name: str, known: Iterable[str], dashes: str = "") -> str:
    """A question whether a name like this one was meant; empty if none is like it."""
    names = list(known)
    last = name.rpartition(".")[2]
    same_end = [each for each in names if each.rpartition(".")[2] == last]
    near = same_end[:1] or difflib.get_close_matches(name, names, 1, 0.7)
    if not near:
        ends = {each.rpartition(".")[2]: each for each in reversed(names)}
        near = [ends[end] for end in difflib.get_close_matches(last, ends, 1, 0.75)]
    return f"; did you mean {dashes}{near[0]}?" if near else ""


def with_underscores(arguments: list[str]) -> list[str]:
    """Dashes within the name of an option are underscores: `--dry-run` is `--dry_run`."""
    found = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        found.append(f"{name}{equals}{value}")
    return found


def refuse_secrets(arguments: list[str]) -> None:
    """No secret stands on a command line, which every user of the machine can read.

    Raises:
        SettingsError: one does; the sentence says where it belongs, and does not repeat it.
    """
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--")
        if argument.startswith("--") and name in SECRETS:
            raise SettingsError(
                f"--{name} would show a secret to every user of this machine; name its file by "
                "--token_file or --key_file, or set ISLANDS_TOKEN"
            )


def _flags(options_class: type) -> argparse.ArgumentParser:
    flags = _Flags(add_help=False, allow_abbrev=False)
    _add_flags(flags, options_class, "_")
    flags.set_defaults(config=[], print_config=False)
    return flags


def _add_flags(place: argparse._ActionsContainer, options_class: type, dash: str) -> None:
    """Register what every command understands; to the eye with dashes, which become underscores."""
    if options_class in HAVE_A_FILE:
        place.add_argument(
            "--config", metavar="FILE", action="append", help="YAML file; of several, the last wins"
        )
        place.add_argument(
            "--print_config", action="store_true", help="print all settings as YAML, and end"
        )
    if options_class in PLANNED:
        place.add_argument(
            f"--dry{dash}run",
            action="store_true",
            help="say what the run would need, and what would be refused; start nothing",
        )
        place.add_argument(
            "--step_time_s",
            metavar="SECONDS",
            type=float,
            help="of one step, for the figures of --dry_run; by default they are for 1 step/s",
        )
    place.add_argument("--debug", action="store_true", help="show the traceback of an error")


class _Refusing(ArgumentParser):
    """Raises instead of ending the process."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise SettingsError(message)


class _Flags(argparse.ArgumentParser):
    """Reads what every command understands, and leaves the rest; raises as `_Refusing`."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(FLAG_ERROR.sub(r"--\1: \2", message))
