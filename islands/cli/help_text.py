"""The text of `--help`: groups with a title each, a default for every option, 80 columns."""

import argparse
import inspect
import re
from collections.abc import Collection, Mapping
from typing import Any, get_args

from islands.cli.schema import Key
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings, Timing

COLUMNS = 80
CHOICES_MOST = 60
"""Characters that the allowed values may take beside an option; longer lists are in its text."""
ABOUT = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
"""One entry of the section `Args:` of a docstring, which may span several lines."""
# The last word of an option's name is its unit, unless the whole name is.
METAVARS = {
    "gbit_s": "GBIT/S",
    "s": "SECONDS",
    "steps": "STEPS",
    "tokens": "TOKENS",
    "file": "FILE",
}
KINDS = {"int": "N", "float": "X", "str": "TEXT", "Path": "PATH"}
TITLES = {
    RunSettings: "The run: what all its members agree on; it lives with the supervisor",
    OuterSettings: "The run: outer optimizer",
    Timing: "The run: timeouts, in seconds for patience 1",
}


class Formatter(argparse.HelpFormatter):
    """80 columns, whatever the terminal has."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=COLUMNS, max_help_position=26)


def epilog(prefix: str, *, has_files: bool) -> str:
    """Return the closing text of the help, which says from which sources values are read."""
    variable = f"The environment variable of --an.option is {prefix}_AN__OPTION."
    if not has_files:
        return f"{variable} The command line wins over it."
    return (
        f"Options may stand in a YAML file (--config), where each dot is a level. {variable} "
        "The environment wins over the file, the command line over both."
    )


def add_keys(
    parser: argparse.ArgumentParser, keys: Mapping[str, Key], options_class: type
) -> list[argparse.Action]:
    """Add the options in groups, the command's own first; return those of the long help alone."""
    advanced: list[argparse.Action] = []
    groups: dict[type, list[Key]] = {options_class: []}
    for key in keys.values():
        groups.setdefault(key.group, []).append(key)
    for group, members in groups.items():
        text = inspect.cleandoc(group.__doc__ or "")
        title = TITLES.get(group, text.partition("\n")[0].rstrip("."))
        about = _about(group)
        own = group is options_class
        shown = parser.add_argument_group("Of this command" if own else title)
        for key in members:
            option = _add_key(shown, key, about.get(key.name.rpartition(".")[2], ""))
            if key.advanced:
                advanced.append(option)
    return advanced


def shorten(parser: argparse.ArgumentParser, advanced: Collection[argparse.Action]) -> None:
    """Leave out advanced options of the help, and say so at its end."""
    for option in advanced:
        option.help = argparse.SUPPRESS
    parser.epilog = f"{parser.epilog} Few need the {len(advanced)} others, which --help all shows."


def _about(group: type) -> dict[str, str]:
    """Return the text of each setting of a class, which may stand in one that it extends."""
    about: dict[str, str] = {}
    for each in reversed(group.__mro__):
        about |= ABOUT.findall(inspect.cleandoc(each.__doc__ or "").partition("\nArgs:\n")[2])
    return about


def _add_key(group: argparse._ActionsContainer, key: Key, about: str) -> argparse.Action:
    text = " ".join(about.split()).replace("`", "").replace("None", "null").rstrip(".")
    if key.default not in (None, (), {}, "") and key.default is not False:
        text += f" (default: {_shown(key.default)})"
    extra: dict[str, Any] = {"metavar": _metavar(key)}
    if key.kind is bool:
        extra = {"nargs": "?", "const": "true", "metavar": "true|false"}
    if key.positional:
        extra["nargs"] = "*" if key.is_list else "?"
    return group.add_argument(
        key.name if key.positional else f"--{key.name}",
        default=argparse.SUPPRESS,
        help=text.replace("%", "%%"),
        **extra,
    )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def _metavar(key: Key) -> str:
    if key.is_mapping:
        return "{KEY: VALUE}"
    if "one of " in key.wanted:
        of_list = "," if key.is_list else "|"
        choices = of_list.join(get_args(key.kind)[0] if key.is_list else key.kind)
        return choices if len(choices) < CHOICES_MOST else "NAME"
    name = key.name.rpartition(".")[2]
    unit = METAVARS.get(name) or METAVARS.get(name.rpartition("_")[2])
    kind = KINDS.get(getattr(key.kind, "__name__", ""), "TEXT")
    return unit or kind
