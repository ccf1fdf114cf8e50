"""Options of `islands lab chaos SCENARIO`: a run, and faults that are injected into it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from islands.lab.faults.fault import (
    ANYBODY,
    AT_ONCE,
    EVERYBODY,
    IN_SCENARIOS,
    LEARNER,
    Fault,
    FaultKind,
)
from islands.protocol.errors import SettingsError
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.setting import COUNT, NOT_NEGATIVE, POSITIVE, check_ranges
from islands.settings.groups import FLAT, RunFile

SLEEPING = "islands.lab.toys.toy_workload:Sleeping"

OF_ALL = ("fault", "who", "at_s", "every_s", "times", "for_s")
OF_KINDS: dict[FaultKind, tuple[str, ...]] = {
    FaultKind.STRAGGLE: ("factor",),
    FaultKind.LATENCY: ("latency_s", "jitter_s"),
    FaultKind.BANDWIDTH: ("bytes_s",),
    FaultKind.FLAP: ("turn_s",),
    FaultKind.RESET: ("mean_bytes",),
}
"""Keys of every fault, and those of some kinds alone; `way` and `link` go with all of links."""


def sleeping() -> RunFile:
    """Return a run whose devices sleep, so that shared cores do not blur what is measured."""
    return RunFile(task=SLEEPING, task_settings={"step_s": 0.02, "megabytes": 1.0})


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """`islands lab chaos`: injects faults into a run, and judges what came of it.

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
        folder: of the run, its evidence and the report; by default a new one under runs/.
    """

    file: RunFile = field(default_factory=sleeping, metadata=FLAT)
    learners: Annotated[int, COUNT] = 3
    faults: dict[str, object] = field(default_factory=dict)
    seed: Annotated[int, NOT_NEGATIVE] = 0
    control_s: Annotated[float, POSITIVE] = 5.0
    rest_s: Annotated[float, POSITIVE] = 5.0
    duration_s: Annotated[float, POSITIVE] = 60.0
    gap_most_s: Annotated[float | None, NOT_NEGATIVE] = 0.02
    step_rate_least: Annotated[float | None, NOT_NEGATIVE] = 0.98
    back_most_s: Annotated[float | None, NOT_NEGATIVE] = 10.0
    folder: Path | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        run = self.file.run
        if run.budget_tokens is not None or run.budget_s is not None:
            raise SettingsError("run has a budget; a scenario's faults decide when its run ends")
        if run.gossip.on:
            raise SettingsError("run.gossip is set; a scenario's faults are those of a hub's run")
        faults_of(self)

    @property
    def step_s(self) -> float | None:
        """Seconds of a step by the task settings; None if they do not say."""
        step_s = self.file.task_settings.get("step_s")
        return float(step_s) if isinstance(step_s, int | float) and step_s > 0 else None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"learner-{index}" for index in range(self.learners))


def faults_of(options: ChaosOptions) -> dict[str, Fault]:
    """Return the faults of a scenario by name, in their order."""
    return {name: _fault(name, entry, options) for name, entry in options.faults.items()}


def _fault(name: str, entry: object, options: ChaosOptions) -> Fault:
    from islands.lab.settings.cells import converted, hint  # numerics, which --help does not need

    place = f"faults.{name}"
    if not isinstance(entry, dict) or "fault" not in entry:
        raise SettingsError(f"{place} is {entry!r}; it must be a mapping such as {{fault: kill}}")
    kind = entry["fault"]
    if kind not in IN_SCENARIOS:
        raise SettingsError(
            f"{place}.fault is {kind!r}; it must be one of {', '.join(IN_SCENARIOS)}"
        )
    keys = ("fault", *(key for key in Fault.__dataclass_fields__ if key != "kind"))
    for key in entry:
        if key not in keys:
            raise SettingsError(f"unknown key {place}.{key}{hint(key, keys)}")
    details = {key: value for key, value in entry.items() if key != "fault"}
    fault = converted(Fault, {**details, "kind": kind}, place)
    known = (*OF_ALL, *keys_of(fault.kind))
    for key in entry:
        if key not in known:
            raise SettingsError(
                f"{place}.{key} does not go with {kind}; its keys are {', '.join(known)}"
            )
    for sentence in _wrong(fault, options):
        raise SettingsError(f"{place}{sentence}")
    return fault


def keys_of(kind: FaultKind) -> tuple[str, ...]:
    return (*(("way", "link") if kind.of_links else ()), *OF_KINDS.get(kind, ()))


def _wrong(fault: Fault, options: ChaosOptions) -> Iterator[str]:
    kind, who = fault.kind, fault.who
    drawn = (LEARNER, ANYBODY, EVERYBODY, SYNCER, SUPERVISOR)
    if who not in (*drawn, *options.names):
        yield (
            f".who is {who!r}; it must be one of {', '.join(drawn)}, or a learner's name: "
            f"{options.names[0]} to {options.names[-1]}"
        )
    if who == EVERYBODY and kind not in AT_ONCE:
        yield ".who is all; only kill and faults of links can happen to all at once"
    if kind.of_links and who in (ANYBODY, SYNCER, SUPERVISOR):
        yield (
            f".who is {who}; {kind} happens to the links of a learner, or of all: link tells which"
        )
    if kind is FaultKind.HANG and who not in (LEARNER, *options.names):
        yield f".who is {who}; hang happens to learners alone"
    if kind is FaultKind.HANG and options.file.task != SLEEPING:
        yield f".fault is hang; only the steps of {SLEEPING} can"
    if fault.at_s and (fault.every_s is not None or fault.times != 1):
        yield " has at_s and every_s or times; at_s tells all times by itself"
