"""Parsing of a command's options: a dataclass goes in, a checked instance of it comes out.

A later source overrides an earlier one: defaults, then a preset, then YAML files, then environment,
then command line. An error is one sentence that names the key, the value, and its source.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from islands.cli.schema import build, plain
from islands.cli.sources import Sources, refuse_secrets, with_underscores
from islands.protocol.errors import SettingsError
from islands.protocol.settings.presets import PRESETS, Preset, settings_of
from islands.settings.groups import put

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class Common:
    """The flags that every command has.

    Args:
        debug: whether to show the traceback of an error.
        dry_run: whether to say what a start would need and refuse, and start nothing.
        step_time_s: seconds of one step, for the figures of a dry run; None if not known.
        config: the YAML files that were read.
        given: keys of the settings that files, environment or command line give; None for all.
    """

    debug: bool = False
    dry_run: bool = False
    step_time_s: float | None = None
    config: tuple[Path, ...] = ()
    given: frozenset[str] | None = None


def parse(
    options_class: type[Options],
    arguments: list[str] | None,
    *,
    program: str,
    description: str,
) -> tuple[Options, Common]:
    """Read defaults, YAML files, environment and command line; later ones override earlier ones.

    Args:
        options_class: the dataclass of the command's options.
        arguments: the arguments of the command line; those of this process if None.
        program: name of the command; its last word is in the names of its environment variables.
        description: what the command does, as one sentence for the help.
    """
    given = with_underscores(sys.argv[1:] if arguments is None else arguments)
    refuse_secrets(given)
    sources = Sources(options_class, program, description)
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
    given_keys = frozenset(name for values in (*layers, line) for name in values)
    dry_run = flags.get("dry_run", False)
    return options, Common(flags["debug"], dry_run, step_time_s, tuple(files), given_keys)


def _preset(defaults: Mapping[str, object], layers: list[dict[str, object]]) -> dict[str, object]:
    """Return the settings by key that the preset stands for; they override defaults alone.

    A default that is not that of the command's own preset is what the command needs, and stays.
    """
    if "preset" not in defaults:
        return {}
    own = PRESETS[Preset(str(defaults["preset"]))]
    given = {name: value for values in layers for name, value in values.items()}
    run = {key: given[f"run.{key}"] for key in _of_run(given)}
    preset = Preset(str(given.get("preset", defaults["preset"])))
    settings = settings_of(preset, run)
    return {
        f"run.{key}": attrgetter(key)(settings)
        for key in _of_run(defaults)
        if defaults[f"run.{key}"] == attrgetter(key)(own)
    }


def _of_run(names: Iterable[str]) -> list[str]:
    """Return the settings of the run among these keys, by their own names."""
    return [name.removeprefix("run.") for name in names if name.startswith("run.")]


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
