"""What a chaos run is told: `islands chaos SCENARIO`.

A scenario is a run, and faults that are injected into it. The same file drives real processes and,
with `--simulate`, the actors on a virtual clock.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from pathlib import Path

import msgspec

from islands.errors import SettingsError
from islands.identities import SUPERVISOR, SYNCER
from islands.settings.groups import RunFile, above, at_least
from islands.settings.host import FLAT

SLEEPING = "islands.training.toy_workload:Sleeping"
LEARNER, ANYBODY, EVERYBODY = "learner", "random", "all"
"""Words for a victim that is drawn: a learner, a learner or the syncer; and for all processes."""

TIMES_MOST = 1000


class FaultKind(StrEnum):
    """The faults that a scenario may name."""

    KILL = "kill"
    SEGFAULT = "segfault"
    EXIT = "exit"
    CRASH = "crash"
    TERMINATE = "terminate"
    FREEZE = "freeze"
    HOLD_GIL = "hold_gil"
    BLOCK_LOOP = "block_loop"
    STRAGGLE = "straggle"

    @property
    def ends_process(self) -> bool:
        """Whether the victim's process is gone after it."""
        return self in ENDING

    @property
    def silences(self) -> bool:
        """Whether the victim sends nothing while it lasts."""
        return self in SILENCING


ENDING = (
    *(FaultKind.KILL, FaultKind.SEGFAULT, FaultKind.EXIT, FaultKind.CRASH),
    FaultKind.TERMINATE,
)
SILENCING = (FaultKind.FREEZE, FaultKind.HOLD_GIL, FaultKind.BLOCK_LOOP)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault of a scenario, which may occur several times.

    Args:
        fault: what happens.
        who: whom it happens to: the name of a learner, `learner` for one that is drawn, `syncer`,
            `supervisor`, `random` for a learner or the syncer, or `all` (`kill` alone).
        at_s: times, in seconds after the control; by default, and without `every_s`, it waits for
            the faults before it in the file and for `rest_s`.
        every_s: mean of the times between two of them, which are drawn (Poisson).
        times: how often it occurs, where `at_s` does not tell; with `every_s` the most.
        for_s: how long it lasts; a supervisor that was ended is started again after it.
        factor: by how many times a straggler is slower.
    """

    fault: FaultKind
    who: str = LEARNER
    at_s: tuple[float, ...] = ()
    every_s: float | None = None
    times: int = 1
    for_s: float = 1.0
    factor: float = 10.0


def sleeping() -> RunFile:
    """Return a run whose devices sleep, so that shared cores do not blur what is measured."""
    return RunFile(task=SLEEPING, task_settings={"step_s": 0.02, "megabytes": 1.0})


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """`islands chaos`: injects faults into a run, and judges what came of it.

    Args:
        file: what the run is; by default its devices only sleep. The faults decide how long it
            lasts.
        learners: how many learners train.
        faults: what happens, by a name for each; see `docs/chaos.md`.
        seed: of all that is drawn.
        control_s: how long nothing happens at first; what is measured later is compared with it.
        rest_s: time after each fault in which the run must recover.
        duration_s: time over which faults with `every_s` are drawn.
        gap_most_s: most by which the longest gap between two steps of the others may exceed that of
            the control; null = it is measured and not judged.
        step_rate_least: least step rate of the others, as a share of the control's; null = it is
            measured and not judged.
        back_most_s: most time from the end of a fault to a merge with its victim; null = it is
            measured and not judged.
        simulate: whether to play the scenario on a virtual clock, with the actors alone.
        folder: of the run, its evidence and the report; by default a new one under runs/.
    """

    file: RunFile = field(default_factory=sleeping, metadata=FLAT)
    learners: int = 3
    faults: dict[str, object] = field(default_factory=dict)
    seed: int = 0
    control_s: float = 5.0
    rest_s: float = 5.0
    duration_s: float = 60.0
    gap_most_s: float | None = 0.02
    step_rate_least: float | None = 0.98
    back_most_s: float | None = 10.0
    simulate: bool = False
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        at_least("learners", self.learners, 1)
        at_least("seed", self.seed, 0)
        for name in ("control_s", "rest_s", "duration_s"):
            above(name, getattr(self, name))
        for name in ("gap_most_s", "step_rate_least", "back_most_s"):
            value = getattr(self, name)
            if value is not None:
                at_least(name, value, 0)
        run = self.file.run
        if run.budget_tokens is not None or run.budget_s is not None:
            raise SettingsError("run has a budget; a scenario's faults decide when its run ends")
        if run.gossip.on:
            raise SettingsError("run.gossip is set; a scenario's faults are those of a hub's run")
        if self.file.layout is not None:
            raise SettingsError("layout is set; the learners of a scenario train a task")
        faults_of(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the learners."""
        return tuple(f"learner-{index}" for index in range(self.learners))


def faults_of(options: ChaosOptions) -> dict[str, PlannedFault]:
    """Return the faults of a scenario by name, in their order.

    Raises:
        SettingsError: one cannot work; the sentence names its key.
    """
    return {name: _fault(name, told, options) for name, told in options.faults.items()}


def _fault(name: str, told: object, options: ChaosOptions) -> PlannedFault:
    place = f"faults.{name}"
    if not isinstance(told, dict) or "fault" not in told:
        raise SettingsError(f"{place} is {told!r}; it must be a mapping such as {{fault: kill}}")
    for key in told:
        if key not in PlannedFault.__dataclass_fields__:
            hint = _hint(str(key), PlannedFault.__dataclass_fields__)
            raise SettingsError(f"unknown key {place}.{key}{hint}")
    if told["fault"] not in tuple(FaultKind):
        raise SettingsError(
            f"{place}.fault is {told['fault']!r}; it must be one of {', '.join(FaultKind)}"
        )
    try:
        fault = msgspec.convert(told, PlannedFault)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{place}: {error}") from error
    _check(fault, place, options)
    return fault


def _check(fault: PlannedFault, place: str, options: ChaosOptions) -> None:
    drawn = (LEARNER, ANYBODY, EVERYBODY, SYNCER, SUPERVISOR)
    if fault.who not in (*drawn, *options.names):
        raise SettingsError(
            f"{place}.who is {fault.who!r}; it must be one of {', '.join(drawn)}, or a learner's "
            f"name: {options.names[0]} to {options.names[-1]}"
        )
    if fault.who == EVERYBODY and fault.fault is not FaultKind.KILL:
        raise SettingsError(f"{place}.who is all; only kill can happen to all at once")
    if fault.at_s and (fault.every_s is not None or fault.times != 1):
        raise SettingsError(
            f"{place} has at_s and every_s or times; at_s tells all times by itself"
        )
    for key in ("for_s", "every_s"):
        value = getattr(fault, key)
        if value is not None and not 0 < value < inf:
            raise SettingsError(f"{place}.{key} is {value}; it must be above 0, and finite")
    if not all(0 <= at_s < inf for at_s in fault.at_s):
        raise SettingsError(f"{place}.at_s is {list(fault.at_s)}; each must be at least 0")
    if not 1 <= fault.times <= TIMES_MOST:
        raise SettingsError(f"{place}.times is {fault.times}; it must be from 1 to {TIMES_MOST}")
    if not 1 < fault.factor < inf:
        raise SettingsError(f"{place}.factor is {fault.factor}; it must be above 1, and finite")


def _hint(key: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {near[0]}?" if near else f"; it must be one of {', '.join(known)}"
