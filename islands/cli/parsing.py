"""Parsing of a command's options: a dataclass goes in, a checked instance of it comes out.

A later source overrides an earlier one: defaults, then a preset, then YAML files, then environment,
then command line. An error is one sentence that names the key, the value, and its source.
"""

from collections.abc import Mapping
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
RUN = "run."
"""What the keys of the settings of a run begin with."""


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
    given = with_underscores(arguments)
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
