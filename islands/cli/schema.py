"""The conversion of a dataclass of options to a table of keys, and back from values by key.

The name of a field that is itself a dataclass is a prefix of the keys of its fields
(`run.outer.momentum`), unless it is flat: then they are keys of the command itself. A key that
occurs in two groups is one option, and both groups get its value.
"""

import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import convert

from islands.cli.yaml_file import scalar, texts
from islands.protocol.errors import SettingsError
from islands.protocol.settings.setting import facts_of
from islands.settings.groups import FLAT, POSITIONAL

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class Key:
    """One setting, by its dotted name; `group` is the dataclass of which it is a field.

    Only `--help all` shows an advanced one.
    """

    name: str
    hint: Any
    default: object
    group: type
    positional: bool = False
    advanced: bool = False

    @property
    def optional(self) -> bool:
        """Whether null is an allowed value."""
        return type(None) in get_args(self.hint)

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that a value may have, without null."""
        if not isinstance(self.hint, types.UnionType):
            return (self.hint,)
        return tuple(kind for kind in get_args(self.hint) if kind is not type(None))

    @property
    def kind(self) -> Any:  # noqa: ANN401  (a type, of whatever kind)
        return self.kinds[0]

    @property
    def wanted(self) -> str:
        """The allowed values, in words."""
        words = [_wanted(kind) for kind in self.kinds]
        return ", or ".join([*words, "null"] if self.optional else words)

    @property
    def is_mapping(self) -> bool:
        """Whether its value is a mapping, whose keys are the user's own."""
        return get_origin(self.kind) is dict

    @property
    def is_list(self) -> bool:
        return get_origin(self.kind) is tuple

    def convert(self, given: object) -> object:
        """Convert a value of a YAML file or a text to the type that the dataclass holds."""
        if isinstance(given, str) and self.is_list:
            given = texts(given)
            if isinstance(given, list) and get_args(self.kind)[0] is not str:
                given = [scalar(each) for each in given]
        elif isinstance(given, str) and self.kind not in (str, Path):
            given = scalar(given.lower() if any(map(_is_words, self.kinds)) else given)
        return convert(given, self.hint, dec_hook=_made_of)


def _made_of(kind: type, given: object) -> object:
    """Convert to a type that msgspec does not know: a path, or a value in a user's mapping."""
    return Path(given) if kind is Path else given  # type: ignore[arg-type]  # refused by Path itself


def _is_words(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, StrEnum)


def _wanted(kind: Any) -> str:  # noqa: ANN401  (as `Key.kind`)
    if _is_words(kind):
        return "one of " + ", ".join(kind) if len(kind) > 1 else " ".join(kind)
    if get_origin(kind) is tuple:
        return f"{_wanted(get_args(kind)[0])}, or several"
    if get_origin(kind) is dict:
        return "a mapping such as {rows: 4}"
    return WORDS[kind]


WORDS: Mapping[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
}


def keys_of(options_class: type) -> dict[str, Key]:
    """Return all settings of a class by their dotted names, in the order of their declaration."""
    keys: dict[str, Key] = {}
    for key in _walk(options_class):
        keys.setdefault(key.name, key)
    return keys


def _walk(
    group: type, prefix: str = "", instance: object = None, *, advanced: bool = False
) -> Iterator[Key]:
    """Yield the keys of a group; their defaults are those of the instance, if there is one."""
    hints, facts = get_type_hints(group), facts_of(group)
    for field in fields(group):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        default = default if instance is None else getattr(instance, field.name)
        hint, rare = hints[field.name], advanced or facts[field.name].advanced
        if isinstance(hint, type) and is_dataclass(hint):
            inner = prefix if field.metadata == FLAT else f"{prefix}{field.name}."
            yield from _walk(hint, inner, default, advanced=rare)
        else:
            positional = field.metadata == POSITIONAL
            yield Key(f"{prefix}{field.name}", hint, default, group, positional, rare)


def build(options_class: type[Options], values: Mapping[str, object], prefix: str = "") -> Options:
    """Make an instance of a dataclass of options from values by key."""
    hints = get_type_hints(options_class)
    made: dict[str, Any] = {}
    for field in fields(options_class):  # type: ignore[arg-type]  # any dataclass
        if is_dataclass(hints[field.name]):
            inner = prefix if field.metadata == FLAT else f"{prefix}{field.name}."
            made[field.name] = build(hints[field.name], values, inner)
        else:
            made[field.name] = values[f"{prefix}{field.name}"]
    try:
        return options_class(**made)
    except SettingsError as error:
        raise SettingsError(f"{prefix}{error}") from error


def plain(options: object) -> dict[str, object]:
    """Convert options to nested mappings, lists, texts and numbers, as a YAML file holds them."""
    values: dict[str, object] = {}
    for field in fields(options):  # type: ignore[arg-type]  # any dataclass
        value = getattr(options, field.name)
        if isinstance(value, Path | StrEnum | tuple):
            value = list(value) if isinstance(value, tuple) else str(value)
        if not is_dataclass(value):
            values.setdefault(field.name, value)
        elif field.metadata == FLAT:
            for key, inner in plain(value).items():
                values.setdefault(key, inner)
        else:
            values[field.name] = plain(value)
    return values


def flatten(
    nested: Mapping[str, object], keys: Mapping[str, Key], prefix: str = ""
) -> dict[str, object]:
    """Flatten nested mappings to values by dotted key; that of a mapping setting stays whole."""
    values: dict[str, object] = {}
    for name, value in nested.items():
        key = f"{prefix}{name}"
        groups = any(known.startswith(f"{key}.") for known in keys)
        if isinstance(value, dict) and value and key not in keys:
            values |= flatten(value, keys, f"{key}.")
        elif groups and value not in (None, {}):
            raise SettingsError(f"{key} is {value!r}; it must hold settings, such as {key}.seed")
        elif not groups:
            values[key] = value
    return values
