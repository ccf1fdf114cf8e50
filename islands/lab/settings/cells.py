"""The entries of a study's or of a simulation's file: sweeps spread out, settings put together."""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import product
from typing import TypeVar, get_args, get_type_hints

import msgspec

from islands.numerics.outer import outer_optimizer
from islands.protocol.errors import SettingsError
from islands.protocol.settings.presets import PRESETS, Preset, settings_of
from islands.protocol.settings.run import RunSettings
from islands.protocol.settings.setting import check_ranges, facts_of
from islands.settings.groups import put

Kind = TypeVar("Kind")

DECIDED_BY_THE_FILE = ("run", "seed", "budget_tokens", "budget_s")
MAPPINGS = ("arguments", "graph")
"""Settings whose keys are the user's own."""

OF_NO_PRESET = tuple(name for name, fact in facts_of(RunSettings).items() if not fact.by_preset)
"""Settings of a file that hold for all cells, whatever their presets."""


def chosen(
    kind: type[Kind], group: str, entries: Mapping[str, object], baseline: str | None, only: str
) -> list[tuple[str, str, Kind]]:
    """Return cells whose names contain `only`, and those of the baseline.

    Entries, by their names below the key `group` in the file, may each have a `sweep`. Of each cell
    it returns the key of its entry, its name with what is swept, and the cell.
    """
    if not entries:
        raise SettingsError(f"{group} holds none; the file needs some, such as a: {{learners: 4}}")
    if baseline is not None and baseline not in entries:
        raise SettingsError(f"baseline is {baseline!r}; it must be one of {', '.join(entries)}")
    cells = [
        (key, name, cell)
        for key, entry in entries.items()
        for name, cell in _swept(kind, key, entry, f"{group}.{key}")
    ]
    twice = [name for name, times in Counter(name for _, name, _ in cells).items() if times > 1]
    if twice:
        raise SettingsError(f"{group} has {twice[0]!r} twice; each needs a name of its own")
    if not any(only in name for _, name, _ in cells):
        names = ", ".join(name for _, name, _ in cells)
        raise SettingsError(f"only is {only!r}; it must be part of a name: {names}")
    return [each for each in cells if only in each[1] or each[0] == baseline]


def _swept(kind: type[Kind], name: str, entry: object, place: str) -> Iterator[tuple[str, Kind]]:
    """Yield the cells that one entry stands for: itself, or one for each combination of a sweep."""
    if not isinstance(entry, dict):
        raise SettingsError(f"{place} is {entry!r}; it must be a mapping such as {{learners: 4}}")
    rest = {key: value for key, value in entry.items() if key != "sweep"}
    sweep = _sweep(entry.get("sweep", {}), f"{place}.sweep")
    for values in product(*sweep.values()):
        each, cell = dict(zip(sweep, values, strict=True)), rest
        for key, value in each.items():
            cell = put(cell, key, value)
        ends = " ".join(f"{key.removeprefix('run.')}={value}" for key, value in each.items())
        yield f"{name} {ends}".rstrip(), converted(kind, cell, place)


def _sweep(entry: object, place: str) -> dict[str, Sequence[object]]:
    if not isinstance(entry, dict) or not all(
        isinstance(each, list) and each for each in entry.values()
    ):
        raise SettingsError(
            f"{place} is {entry!r}; it must be lists by key, such as {{run.learning_rate: [1e-3]}}"
        )
    return entry


def converted(kind: type[Kind], entry: Mapping[str, object], place: str) -> Kind:
    """Return an entry as a dataclass, whose fields may be dataclasses or tuples of them."""
    _check_keys(kind, entry, place)
    try:
        found = msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{place}: {error}") from error
    _check_ranges(found, place)
    return found


def _check_keys(kind: type, entry: Mapping[str, object], place: str) -> None:
    hints = get_type_hints(kind)
    for key, value in entry.items():
        if key not in hints:
            raise SettingsError(f"unknown key {place}.{key}{hint(key, [*hints, 'sweep'])}")
        inner = next((a for a in (hints[key], *get_args(hints[key])) if is_dataclass(a)), None)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(inner, type) and isinstance(each, dict):
                _check_keys(inner, each, f"{place}.{key}")


def _check_ranges(found: object, place: str) -> None:
    check_ranges(found, f"{place}.")
    for field in fields(found):  # type: ignore[arg-type]  # a dataclass
        value = getattr(found, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            if is_dataclass(each):
                _check_ranges(each, f"{place}.{field.name}")


def run_settings(
    base: RunSettings, preset: str | None, run: Mapping[str, object], place: str
) -> RunSettings:
    """Return the file's settings, replaced by a cell's preset and then by its own `run`.

    What no preset decides is the file's; `place` is the cell's in the file.
    """
    for key in DECIDED_BY_THE_FILE:
        if key in run:
            raise SettingsError(f"{place}.run.{key} is set; the file decides that for all")
    if preset is not None and preset not in PRESETS:
        raise SettingsError(f"{place}.preset is {preset!r}; it must be one of {', '.join(Preset)}")
    if preset is not None:
        base = with_file(base, settings_of(Preset(preset), run))
    merged = _merged(msgspec.to_builtins(base), run, f"{place}.run")
    try:
        settings = msgspec.convert(merged, RunSettings)
        outer_optimizer(settings.outer)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{place}.run: {error}") from error
    except SettingsError as error:
        raise SettingsError(f"{place}.run.{error}") from error
    return settings


def with_file(base: RunSettings, preset: RunSettings) -> RunSettings:
    """Return the settings of a preset with what the file says of the rate and of timeouts."""
    return replace(preset, **{name: getattr(base, name) for name in OF_NO_PRESET})


def _merged(
    base: Mapping[str, object], over: Mapping[str, object], place: str
) -> dict[str, object]:
    """Return nested settings, some of them replaced."""
    merged = dict(base)
    for key, value in over.items():
        if key not in base:
            raise SettingsError(f"unknown key {place}.{key}{hint(key, list(base))}")
        inner = base[key]
        if isinstance(inner, dict) and key not in MAPPINGS:
            if not isinstance(value, dict):
                raise SettingsError(f"{place}.{key} is {value!r}; it must hold settings")
            merged[key] = _merged(inner, value, f"{place}.{key}")
        else:
            merged[key] = value
    return merged


def hint(key: object, known: Sequence[str]) -> str:
    """Return a clause on what may be meant by a key that is none of these."""
    near = difflib.get_close_matches(str(key), known, 1)
    return f"; did you mean {near[0]}?" if near else f"; it must be one of {', '.join(known)}"
