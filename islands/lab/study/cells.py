"""The cells of a study, with their sweeps spread out, and the trials of each."""

import hashlib
import importlib.util
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Annotated

import msgspec

from islands.lab.settings.cells import chosen, run_settings, with_file
from islands.lab.settings.study import StudyOptions
from islands.protocol.errors import SettingsError
from islands.protocol.settings.gossip import check_members
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.protocol.settings.setting import COUNT, Setting

RESULT_FORMAT = 2
"""Part of every fingerprint: results of another format are computed again."""


@dataclass(frozen=True, slots=True)
class Join:
    """Learners that join once a share of the budget's tokens is processed, and stay."""

    learners: Annotated[int, COUNT] = 1
    at_share: Annotated[float, Setting(above=0, below=1)] = 0.5


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting that is compared; `run` and `task_settings` have what differs from the study's.

    M `learners` train; with `data_parallel` one whose batch is M times as large does in their
    place. A `preset` replaces the study's settings, but for the rate's schedule. A step takes
    `step_s` on average, with a standard deviation of `noise` times that, and times each learner's
    entry in `speeds`, 1 for those not named. Learners of `joins` come later.
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
    """One run of one cell, which has a key in the study's file, and a name with what is swept."""

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
        """Digest of its settings, of the task's file and of the version of Islands.

        What the task imports, and what it reads, is not part of it.
        """
        cell = replace(self.cell, run={}, task_settings={})  # they are in what follows
        program = (RESULT_FORMAT, version("islands"), self.task, _source_digest(self.task))
        parts = (program, cell, self.settings, self.task_settings, self.tokens)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:32]


def trials_of(options: StudyOptions) -> list[Trial]:
    """All runs of a study: seed by seed, so that an early look compares equals."""
    found = chosen(Cell, "cells", options.cells, options.baseline, options.only or "")
    return [_trial(options, *each, seed) for seed in options.seeds for each in found]


@cache
def _source_digest(task: str) -> str:
    try:
        spec = importlib.util.find_spec(task.partition(":")[0])
        source = "" if spec is None or spec.origin is None else spec.origin
        return hashlib.sha256(Path(source).read_bytes()).hexdigest()
    except (ImportError, OSError, ValueError):
        return ""


def _trial(options: StudyOptions, key: str, name: str, cell: Cell, seed: int) -> Trial:
    settings = _settings(options.run, cell, f"cells.{key}")
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
    if len(cell.speeds) > cell.learners or not all(0 < speed < inf for speed in cell.speeds):
        raise SettingsError(
            f"{place}.speeds is {list(cell.speeds)}; it must be at most one number above 0 for "
            f"each of {cell.learners} learners"
        )
    if cell.joins and cell.data_parallel:
        raise SettingsError(
            f"{place}.joins is set, and data_parallel too; that is one learner, which nobody joins"
        )
    settings = run_settings(base, cell.preset, cell.run, place)
    if cell.data_parallel:
        return with_file(settings, PRESETS[Preset.DATA_PARALLEL])
    try:
        check_members(settings.gossip, [f"learner-{index}" for index in range(cell.learners)])
    except SettingsError as error:
        raise SettingsError(f"{place}.run.{error}") from error
    return settings
