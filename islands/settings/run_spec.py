"""The run spec (settings and task by name), and the run plan made from it (layout and shards).

The supervisor keeps the spec and sends it to every process that joins. The plan is made once, from
the task, on the supervisor's host; a syncer gets it from there and needs neither JAX nor the task.
A learner makes its own plan from its own task and compares the two before it joins.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import msgspec

from islands.files.folder_lock import make_private
from islands.files.run_files import PLAN_FILE, SPARE, SPEC_FILE
from islands.files.spare_files import read_either, spare_of, write_twice
from islands.files.whole_files import read_sealed, write_sealed
from islands.layout.leaves import Layout, layout_of
from islands.protocol.errors import DamagedError, RefusedError, UserError, unusable
from islands.protocol.settings.choices import Precision
from islands.protocol.settings.run import RunSettings
from islands.protocol.settings.setting import facts_of
from islands.settings.groups import OWN_LOOP, RunFile, put

MEND = "restore it from a copy, or begin a run in another folder"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Settings and task of a run.

    Args:
        settings: settings that all members agree on.
        task: the task to train, as `package.module:Class`.
        task_settings: arguments of the task.
        preset: the preset whose settings were the defaults; empty if it is not known.
    """

    settings: RunSettings = field(default_factory=RunSettings)
    task: str = "islands.tasks.stdlib_bytes:StdlibBytes"
    task_settings: dict[str, object] = field(default_factory=dict)
    preset: str = ""

    @staticmethod
    def of(file: RunFile) -> "RunSpec":
        task = file.task or OWN_LOOP
        return RunSpec(file.run, task, dict(file.task_settings), file.preset.value)

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(text: str | bytes) -> "RunSpec":
        try:
            return msgspec.json.decode(text, type=RunSpec)
        except (msgspec.MsgspecError, UserError) as error:
            raise RefusedError(f"the run's settings are not understood here: {error}") from error

    def with_precision(self, precision: Precision | None) -> "RunSpec":
        """Return the spec of a learner with a precision of its own; None: the run's."""
        if precision is None:
            return self
        return replace(self, settings=replace(self.settings, precision=precision))

    def continued(self, earlier: "RunSpec", given: Collection[str]) -> "RunSpec":
        """Return an earlier spec with what was given now, by keys as in a run's file."""
        settings, now = _plain(earlier.settings), _plain(self.settings)
        arguments = self.task_settings if "task_settings" in given else earlier.task_settings
        for key in given:
            group, _, name = key.partition(".")
            if group == "run" and name:
                settings = put(settings, name, _at(now, name))
            elif group == "task_settings" and name:
                arguments = put(arguments, name, _at(self.task_settings, name))
        task = self.task if "task" in given else earlier.task
        preset = self.preset if "preset" in given else earlier.preset
        return RunSpec(msgspec.convert(settings, RunSettings), task, arguments, preset)

    def changed_from(self, earlier: "RunSpec") -> str | None:
        """The first part of an earlier spec that changed though it must not; None if none did."""
        names = ("task", "task_settings", "preset")
        before, now = ({name: getattr(one, name) for name in names} for one in (earlier, self))
        changes = _differences(before, now)
        for name, pair in _differences(_plain(earlier.settings), _plain(self.settings)).items():
            if not facts_of(RunSettings)[name.partition(".")[0]].resumable:
                changes[f"run.{name}"] = pair
        for name, pair in changes.items():
            old, new = ("null" if value is None else value for value in pair)
            return f"{name} = {old}, not {new}"
        return None

    def differences(self, earlier: "RunSpec") -> tuple[str, ...]:
        """Each setting that changed, nested ones included, as `name: before -> now`."""
        changes = _differences(_plain(earlier.settings), _plain(self.settings))
        return tuple(f"{name}: {old} -> {new}" for name, (old, new) in changes.items())


def _plain(settings: RunSettings) -> dict[str, object]:
    """Settings as decoded JSON, so that numbers count as equal if they are equal in messages."""
    return msgspec.json.decode(msgspec.json.encode(settings), type=dict[str, object])


def _at(settings: dict[str, object], key: str) -> object:
    value: object = settings
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _differences(
    before: Mapping[str, object], now: Mapping[str, object], prefix: str = ""
) -> dict[str, tuple[object, object]]:
    """The old and the new value of each setting that differs, by dotted name."""
    changes: dict[str, tuple[object, object]] = {}
    for name in {**now, **before}:
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            changes |= _differences(old, new, f"{prefix}{name}.")
        elif old != new:
            changes[f"{prefix}{name}"] = old, new
    return changes


class Way(StrEnum):
    """What becomes of a run that has diverged."""

    WAITS = "waits"
    GOES_BACK = "goes_back"
    WENT_BACK = "went_back"


@dataclass(frozen=True, slots=True)
class Diverged:
    """The last divergence of a run, which was noticed when it had made so many `merges`.

    `checkpoint` names the one from before it; empty if there is none. A hub decides on the way: the
    run waits for a person, or its next start goes back.
    """

    merges: int
    checkpoint: str
    way: Way


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan that follows from a spec: the layout, and the number of virtual shards per pass.

    `begun` tells a run from another of its name. `records` is the number of records that loops of
    the users' own lease; 0: they read data of their own. `may_return` tells whether members of an
    earlier hub may find this one, so that their values are taken back if there is no journal.
    `went_back_from` is what a run was `begun` as before it first went back to a checkpoint.
    `diverged` is kept whenever it goes back.
    """

    layout: Layout
    shards: int
    begun: str = ""
    records: int = 0
    may_return: bool = False
    went_back_from: str = ""
    diverged: Diverged | None = None

    @property
    def origin(self) -> str:
        return self.went_back_from or self.begun

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes | memoryview) -> "RunPlan":
        try:
            plan = msgspec.json.decode(data, type=RunPlan)
        except msgspec.MsgspecError as error:
            raise RefusedError(f"the run's plan is not understood here: {error}") from error
        stated = plan.layout
        layout = layout_of(stated.leaves, stated.fragments, stated.pattern, dict(stated.labels))
        if layout != stated:
            raise RefusedError("the run's plan does not have the fingerprint that it names")
        return replace(plan, layout=layout)


def write(folder: Path, spec: RunSpec, plan: RunPlan) -> None:
    """Write spec and plan into a run's folder, each twice, where a restarted hub finds them.

    A folder without any spec holds no run yet, so that is written last.
    """
    contents = {
        PLAN_FILE: plan.encode(),
        SPEC_FILE: msgspec.json.format(spec.encode().encode(), indent=2),
    }
    try:
        if not (folder / SPEC_FILE).exists():  # the copies tell that the first write was finished
            make_private(folder)
            for name, content in contents.items():
                write_sealed(folder / name, content)
        for name, content in contents.items():
            write_twice(folder / name, content)
    except OSError as error:
        raise unusable(f"the run folder {folder} cannot be written", error) from error


def read(folder: Path) -> tuple[RunSpec, RunPlan] | None:
    """Read spec and plan from a run's folder, from the spare of one that is not whole.

    None if it holds no run.
    """
    try:
        spec, plan = read_either(folder / SPEC_FILE), read_either(folder / PLAN_FILE)
    except DamagedError as error:
        raise DamagedError(f"{error}; {MEND}") from error
    if spec is not None and plan is not None:
        return RunSpec.decode(spec), RunPlan.decode(plan)
    if spec is None and (plan is None or not (folder / SPARE).exists()):
        return None
    lost, kept = (SPEC_FILE, PLAN_FILE) if spec is None else (PLAN_FILE, SPEC_FILE)
    raise DamagedError(f"{folder} holds the {kept} of a run, but {lost} is missing; {MEND}")


def not_whole(folder: Path) -> list[str]:
    """Return which of the files that `read` reads are damaged or missing beside a whole spare."""
    found = []
    for name in (SPEC_FILE, PLAN_FILE):
        try:
            whole = read_sealed(folder / name) is not None
        except DamagedError:
            whole = False
        if not whole and spare_of(folder / name).exists():
            found.append(name)
    return found
