"""The cells of a study, with their sweeps spread out, and the trials of each.

A trial's fingerprint is of its settings, of the file that holds the task, and of this version of
islands. What the task imports, and what it reads, is not part of it.
"""

import difflib
import hashlib
import importlib.util
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from itertools import product
from math import inf
from pathlib import Path
from typing import Annotated

import msgspec

from islands.lab.settings.fleets import SHARE
from islands.lab.settings.study import StudyOptions
from islands.numerics.outer import outer_optimizer
from islands.protocol.errors import SettingsError
from islands.protocol.settings.gossip import check_members
from islands.protocol.settings.presets import PRESETS, Preset, settings_of
from islands.protocol.settings.run import RunSettings
from islands.protocol.settings.setting import COUNT, Setting, check_ranges, facts_of
from islands.settings.groups import put

RESULT_FORMAT = 2
"""Part of every fingerprint: results of another format are computed again."""

DECIDED_BY_THE_STUDY = ("run", "seed", "budget_tokens", "budget_s")
MAPPINGS = ("arguments", "graph")
"""Settings whose keys are the user's own."""

OF_NO_PRESET = tuple(name for name, fact in facts_of(RunSettings).items() if not fact.by_preset)
"""Settings of a study that hold for all cells, whatever their presets."""


@dataclass(frozen=True, slots=True)
class Join:
    """Learners that join at one moment, and stay.

    Args:
        learners: how many.
        at_share: share of the budget's tokens that is processed when they start.
    """

    learners: Annotated[int, COUNT] = 1
    at_share: Annotated[float, SHARE] = 0.5


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting that is compared.

    Args:
        learners: M, how many train.
        data_parallel: one learner whose batch is M times as large trains in their place.
        preset: algorithm whose settings replace the study's own, but for the rate's schedule.
        run: settings that differ from the study's, as in a run's file.
        task_settings: arguments of the task that differ from the study's.
        step_s: mean seconds of one step.
        noise: standard deviation of a step's time, as a share of the mean.
        speeds: by how many times the steps of each learner are longer; 1 for those not named.
        latency_s: of one message, in seconds.
        joins: learners that join later, beside the `learners` of the start.
    """

    learners: Annotated[int, COUNT] = 4
    data_parallel: bool = False
    preset: str | None = None
    run: dict[str, object] = field(default_factory=dict)
    task_settings: dict[str, object] = field(default_factory=dict)
    step_s: Annotated[float, Setting(above=0, below=inf)] = 0.1
    noise: Annotated[float, Setting(least=0, below=inf)] = 0.1
    speeds: tuple[float, ...] = ()
    latency_s: Annotated[float, Setting(least=0, below=inf)] = 0.005
    joins: tuple[Join, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of one cell.

    Args:
        key: of the cell in the study's file.
        name: of the cell, with what is swept.
        cell: how it trains.
        seed: of all chance.
        settings: of the run.
        task: what is trained, as package.module:Class.
        task_settings: arguments of the task.
        tokens: budget of all learners together.
    """

    key: str
    name: str
    cell: Cell
    seed: int
    settings: RunSettings
    task: str
    task_settings: dict[str, object]
    tokens: int

    @property
    def fingerprint(self) -> str:
        """Digest of all that the result depends on, as far as it is known; names are no part."""
        cell = replace(self.cell, run={}, task_settings={})  # they are in what follows
        program = (RESULT_FORMAT, version("islands"), self.task, _source_digest(self.task))
        parts = (program, cell, self.settings, self.task_settings, self.tokens)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:32]


def trials_of(options: StudyOptions) -> list[Trial]:
    """All runs of a study: seed by seed, so that an early look compares equals.

    Raises:
        SettingsError: a cell cannot work; the sentence names its key.
    """
    if not options.cells:
        raise SettingsError("cells holds none; a study needs some, such as diloco: {learners: 4}")
    if options.baseline is not None and options.baseline not in options.cells:
        raise SettingsError(
            f"baseline is {options.baseline!r}; it must be one of {', '.join(options.cells)}"
        )
    cells = [
        (key, name, cell)
        for key, entry in options.cells.items()
        for name, cell in _swept(key, entry)
    ]
    twice = [name for name, times in Counter(name for _, name, _ in cells).items() if times > 1]
    if twice:
        raise SettingsError(f"cells has {twice[0]!r} twice; each needs a name of its own")
    only = "" if options.only is None else options.only
    if not any(only in name for _, name, _ in cells):
        names = ", ".join(name for _, name, _ in cells)
        raise SettingsError(f"only is {only!r}; it must be part of a name: {names}")
    chosen = [each for each in cells if only in each[1] or each[0] == options.baseline]
    return [_trial(options, *each, seed) for seed in options.seeds for each in chosen]


@cache
def _source_digest(task: str) -> str:
    try:
        spec = importlib.util.find_spec(task.partition(":")[0])
        source = "" if spec is None or spec.origin is None else spec.origin
        return hashlib.sha256(Path(source).read_bytes()).hexdigest()
    except (ImportError, OSError, ValueError):
        return ""


def _trial(options: StudyOptions, key: str, name: str, cell: Cell, seed: int) -> Trial:
    settings = _settings(options.run, cell, f"cells.{key}.run")
    argument = {} if options.seed_argument is None else {options.seed_argument: seed}
    return Trial(
        key=key,
        name=name,
        cell=cell,
        seed=seed,
        settings=replace(settings, budget_tokens=options.tokens, budget_s=None, seed=seed),
        task=options.task,
        task_settings={**options.task_settings, **cell.task_settings, **argument},
        tokens=options.tokens,
    )


def _settings(base: RunSettings, cell: Cell, place: str) -> RunSettings:
    for key in DECIDED_BY_THE_STUDY:
        if key in cell.run:
            raise SettingsError(f"{place}.{key} is set; the study itself decides that")
    merged = _merged(msgspec.to_builtins(_with_preset(base, cell, place)), cell.run, place)
    try:
        settings = msgspec.convert(merged, RunSettings)
        outer_optimizer(settings.outer)
        if not cell.data_parallel:
            check_members(settings.gossip, [f"learner-{index}" for index in range(cell.learners)])
    except msgspec.ValidationError as error:
        raise SettingsError(f"{place}: {error}") from error
    except SettingsError as error:
        raise SettingsError(f"{place}.{error}") from error
    return _kept(settings, PRESETS[Preset.DATA_PARALLEL]) if cell.data_parallel else settings


def _with_preset(base: RunSettings, cell: Cell, place: str) -> RunSettings:
    """Return the settings from which a cell's own differ.

    Raises:
        SettingsError: there is no such preset.
    """
    if cell.preset is None:
        return base
    if cell.preset not in PRESETS:
        preset = place.removesuffix(".run") + ".preset"
        raise SettingsError(f"{preset} is {cell.preset!r}; it must be one of {', '.join(Preset)}")
    return _kept(base, settings_of(Preset(cell.preset), cell.run))


def _kept(base: RunSettings, preset: RunSettings) -> RunSettings:
    """Return the settings of a preset with what the study says of the rate and of timeouts."""
    return replace(preset, **{name: getattr(base, name) for name in OF_NO_PRESET})


def _merged(
    base: Mapping[str, object], over: Mapping[str, object], place: str
) -> dict[str, object]:
    """Nested settings, some of them replaced.

    Raises:
        SettingsError: a key is unknown, or a group of settings is given as a value.
    """
    merged = dict(base)
    for key, value in over.items():
        if key not in base:
            raise SettingsError(f"unknown key {place}.{key}{_hint(key, base)}")
        inner = base[key]
        if isinstance(inner, dict) and key not in MAPPINGS:
            if not isinstance(value, dict):
                raise SettingsError(f"{place}.{key} is {value!r}; it must hold settings")
            merged[key] = _merged(inner, value, f"{place}.{key}")
        else:
            merged[key] = value
    return merged


def _hint(key: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {near[0]}?" if near else f"; it must be one of {', '.join(known)}"


# --- sweeps -----------------------------------------------------------------------------------


def _swept(name: str, entry: object) -> Iterator[tuple[str, Cell]]:
    """The cells that one entry stands for: itself, or one for each combination of its sweep."""
    place = f"cells.{name}"
    if not isinstance(entry, dict):
        raise SettingsError(f"{place} is {entry!r}; it must be a mapping such as {{learners: 4}}")
    rest = {key: value for key, value in entry.items() if key != "sweep"}
    sweep = _sweep(entry.get("sweep", {}), f"{place}.sweep")
    for values in product(*sweep.values()):
        chosen = dict(zip(sweep, values, strict=True))
        cell = rest
        for key, value in chosen.items():
            cell = put(cell, key, value)
        ends = " ".join(f"{key.removeprefix('run.')}={value}" for key, value in chosen.items())
        yield f"{name} {ends}".rstrip(), _cell(cell, place)


def _sweep(entry: object, place: str) -> dict[str, Sequence[object]]:
    if not isinstance(entry, dict) or not all(
        isinstance(each, list) and each for each in entry.values()
    ):
        raise SettingsError(
            f"{place} is {entry!r}; it must be lists by key, such as {{run.learning_rate: [1e-3]}}"
        )
    return entry


def _check_keys(joins: object, place: str) -> None:
    for join in joins if isinstance(joins, list) else ():
        for key in join if isinstance(join, dict) else ():
            if key not in Join.__dataclass_fields__:
                hint = _hint(key, dict.fromkeys(Join.__dataclass_fields__))
                raise SettingsError(f"unknown key {place}.{key}{hint}")


def _cell(entry: Mapping[str, object], place: str) -> Cell:
    for key in entry:
        if key not in Cell.__dataclass_fields__:
            known = {**dict.fromkeys(Cell.__dataclass_fields__), "sweep": None}
            raise SettingsError(f"unknown key {place}.{key}{_hint(key, known)}")
    _check_keys(entry.get("joins"), f"{place}.joins")
    try:
        cell = msgspec.convert(entry, Cell)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{place}: {error}") from error
    check_ranges(cell, f"{place}.")
    if len(cell.speeds) > cell.learners or not all(0 < speed < inf for speed in cell.speeds):
        raise SettingsError(
            f"{place}.speeds is {list(cell.speeds)}; it must be at most one number above 0 for "
            f"each of {cell.learners} learners"
        )
    _check_joins(cell.joins, place, data_parallel=cell.data_parallel)
    return cell


def _check_joins(joins: Sequence[Join], place: str, *, data_parallel: bool) -> None:
    if joins and data_parallel:
        raise SettingsError(
            f"{place}.joins is set, and data_parallel too; that is one learner, which nobody joins"
        )
    for join in joins:
        check_ranges(join, f"{place}.joins.")
