"""What a chaos run is told: `islands chaos SCENARIO`.

A scenario is a run, and faults that are injected into it. The same file drives real processes and,
with `--simulate`, the actors on a virtual clock.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from pathlib import Path
from string import ascii_lowercase

import msgspec

from islands.protocol.errors import SettingsError
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.settings.groups import RunFile, above, at_least
from islands.settings.host import FLAT

SLEEPING = "islands.lab.toys.toy_workload:Sleeping"
LEARNER, ANYBODY, EVERYBODY, REMOTE = "learner", "random", "all", "remote"
"""Words for a victim that is drawn: a learner, a learner or the syncer; for all processes; and for
the learners on a host of their own."""

TIMES_MOST = 1000
COUNT_MOST = 10_000
"""Most connections of strangers: the ports of the loopback are not many more."""
JUMP_MOST_S = 3e8
"""Most by which a clock jumps: some ten years, after which dates still have four digits."""

STRANGERS_LEAST_S = 7.0
"""Least length of `half_open` and `garbage`: each second a hub closes what has had no session for
5 s."""


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
    HANG = "hang"
    SECOND = "second"
    HALF_OPEN = "half_open"
    GARBAGE = "garbage"
    CLOCK = "clock"
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    CUT = "cut"
    FLAP = "flap"
    RESET = "reset"
    DRIBBLE = "dribble"
    FLIP = "flip"
    DUPLICATE = "duplicate"
    DROP = "drop"
    SHAPE = "shape"

    @property
    def of_links(self) -> bool:
        """Whether it happens to the links of learners, and to no process."""
        return self in LINKS

    @property
    def of_hosts(self) -> bool:
        """Whether it happens to the packets of the remote learners' host."""
        return self in HOSTS

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
    *(FaultKind.TERMINATE, FaultKind.HANG),
)
SILENCING = (FaultKind.FREEZE, FaultKind.HOLD_GIL, FaultKind.BLOCK_LOOP)
LINKS = (
    *(FaultKind.LATENCY, FaultKind.BANDWIDTH, FaultKind.CUT, FaultKind.FLAP, FaultKind.RESET),
    *(FaultKind.DRIBBLE, FaultKind.FLIP, FaultKind.DUPLICATE),
)
HOSTS = (FaultKind.DROP, FaultKind.SHAPE)
COUNTED = (FaultKind.RESET, FaultKind.FLIP, FaultKind.DUPLICATE)
"""Kinds of which it is counted how often they struck."""
STRANGERS = (FaultKind.HALF_OPEN, FaultKind.GARBAGE)
AT_ONCE = (FaultKind.KILL, FaultKind.CLOCK, *LINKS)
"""Kinds that can happen to all at once."""

OF_ALL = ("fault", "who", "at_s", "every_s", "times", "for_s")
OF_KINDS: dict[FaultKind, tuple[str, ...]] = {
    FaultKind.STRAGGLE: ("factor",),
    FaultKind.HALF_OPEN: ("count",),
    FaultKind.GARBAGE: ("count",),
    FaultKind.CLOCK: ("jump_s",),
    FaultKind.LATENCY: ("latency_s", "jitter_s"),
    FaultKind.BANDWIDTH: ("bytes_s",),
    FaultKind.FLAP: ("turn_s",),
    FaultKind.RESET: ("mean_bytes",),
    FaultKind.FLIP: ("mean_bytes",),
    FaultKind.DUPLICATE: ("share",),
    FaultKind.DROP: ("way", "every"),
    FaultKind.SHAPE: ("rate",),
}
"""Keys of every fault, and those of some kinds alone; `way` and `link` go with all of links."""
TURN_LEAST_S = 0.01
RATE = re.compile(r"[0-9]+(\.[0-9]+)?([kmgt]i?)?(bit|bps)")
"""A bandwidth in the words of `tc`."""


class Direction(StrEnum):
    """Which way of a link: from the learner, to it, or both."""

    UP = "up"
    DOWN = "down"
    BOTH = "both"


class Peer(StrEnum):
    """Which of a learner's links: to the syncer, to the supervisor, or both."""

    SYNCER = SYNCER
    SUPERVISOR = SUPERVISOR
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault of a scenario, which may occur several times.

    Args:
        fault: what happens.
        who: whom it happens to: the name of a learner, `learner` for one that is drawn, `syncer`,
            `supervisor`, `random` for a learner or the syncer, or `all`. Faults of links happen to
            those of a learner, or of all learners; beside them only `kill` and `clock` can happen
            to all. `drop` and `shape` happen to `remote`.
        at_s: times, in seconds after the control; by default, and without `every_s`, it waits for
            the faults before it in the file and for `rest_s`.
        every_s: mean of the times between two of them, which are drawn (Poisson).
        times: how often it occurs, where `at_s` does not tell; with `every_s` the most.
        for_s: how long it lasts; a supervisor that was ended, and whoever was asked to leave, is
            started again after it. Others that ended are restarted by the supervisor.
        factor: by how many times a straggler is slower.
        way: which way of a link.
        link: which of a learner's links.
        latency_s: how much later bytes arrive.
        jitter_s: up to how much later still.
        bytes_s: most bytes that pass in a second.
        mean_bytes: mean number of bytes between two flipped bits, or before a reset.
        share: share of frames that come twice.
        turn_s: for how long a flapping link is cut, and then whole.
        every: of the packets that may be dropped, each so manieth is.
        count: number of connections of strangers.
        jump_s: by how much the clock is ahead; below 0 it is behind.
        rate: what is left of the bandwidth of the remote host, in the words of `tc`.
    """

    fault: FaultKind
    who: str = LEARNER
    at_s: tuple[float, ...] = ()
    every_s: float | None = None
    times: int = 1
    for_s: float = 1.0
    factor: float = 10.0
    way: Direction = Direction.BOTH
    link: Peer = Peer.BOTH
    latency_s: float = 0.2
    jitter_s: float = 0.1
    bytes_s: float = 250e3
    mean_bytes: float = 1e5
    share: float = 0.2
    turn_s: float = 1.0
    every: int = 1
    count: int = 500
    jump_s: float = 3600.0
    rate: str = "2mbit"

    @property
    def silences(self) -> bool:
        """Whether the supervisor hears nothing of a victim while it lasts."""
        cut = self.fault is FaultKind.CUT and self.link is not Peer.SYNCER
        dropped = self.fault is FaultKind.DROP and self.every == 1
        return cut or dropped or self.fault.silences

    def silent_most_s(self, lasted_s: float) -> float:
        """Return for how long at most the supervisor hears nothing of a victim.

        After a cut TCP waits up to as long again before it retransmits.
        """
        if not self.silences:
            return 0.0
        return lasted_s if self.fault.silences else 2 * lasted_s

    def evicted_after_s(self, evict_s: float) -> float:
        """Return how long after the beginning a victim is evicted that stays silent.

        One that hears nothing and is heard itself closes its link before it is silent.
        """
        cut = self.fault in (FaultKind.CUT, FaultKind.DROP)
        unheard = cut and self.way is Direction.DOWN
        return 2 * evict_s if unheard else evict_s

    @property
    def disturbs(self) -> bool:
        """Whether a victim may be evicted for it, however long it lasts.

        Its session ends for what comes damaged, twice or too slowly, and each next one may as well.
        """
        broken = (FaultKind.FLAP, FaultKind.RESET, FaultKind.FLIP, FaultKind.DUPLICATE)
        slow = (FaultKind.BANDWIDTH, FaultKind.DRIBBLE, FaultKind.DROP, FaultKind.SHAPE)
        if self.fault is FaultKind.DROP and self.every == 1:
            return False
        return self.fault in (*broken, *slow) and self.link is not Peer.SYNCER


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
        remote: how many of the learners, the last ones, live on a host of their own: a network
            namespace behind a router, which needs root.
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
    remote: int = 0
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
        if not 0 <= self.remote <= self.learners:
            raise SettingsError(
                f"remote is {self.remote}; it must be from 0 to learners, {self.learners}"
            )
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
        kinds = [fault.fault for fault in faults_of(self).values()]
        if self.remote and any(kind.of_links for kind in kinds):
            raise SettingsError(
                "remote is set, and there are faults of links, whose proxy remote learners cannot "
                "reach; make a scenario of each"
            )

        near = [FaultKind.SECOND, *STRANGERS]
        if self.remote and (found := [kind for kind in kinds if kind in near]):
            raise SettingsError(
                f"remote is set, and there is {found[0]}, which is done from where remote learners "
                "and their hub cannot be reached; make a scenario of each"
            )

    @property
    def step_s(self) -> float | None:
        """How long the task settings say that a step takes; None if they do not."""
        told_s = self.file.task_settings.get("step_s")
        return float(told_s) if isinstance(told_s, int | float) and told_s > 0 else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the learners."""
        return tuple(f"learner-{index}" for index in range(self.learners))

    @property
    def remote_names(self) -> tuple[str, ...]:
        """Names of the learners on a host of their own."""
        return self.names[self.learners - self.remote :]


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
    known = (*OF_ALL, *keys_of(FaultKind(told["fault"])))
    for key in told:
        if key not in known:
            raise SettingsError(
                f"{place}.{key} does not go with {told['fault']}; its keys are {', '.join(known)}"
            )
    try:
        fault = msgspec.convert(told, PlannedFault)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{place}: {error}") from error
    _check_who(fault, place, options)
    _check_values(fault, place)
    return fault


def keys_of(kind: FaultKind) -> tuple[str, ...]:
    """Return the keys that a kind of fault has beside those of every fault."""
    return (*(("way", "link") if kind.of_links else ()), *OF_KINDS.get(kind, ()))


def _check_who(fault: PlannedFault, place: str, options: ChaosOptions) -> None:
    drawn = (LEARNER, ANYBODY, EVERYBODY, SYNCER, SUPERVISOR, REMOTE)
    if fault.who not in (*drawn, *options.names):
        raise SettingsError(
            f"{place}.who is {fault.who!r}; it must be one of {', '.join(drawn)}, or a learner's "
            f"name: {options.names[0]} to {options.names[-1]}"
        )
    if fault.who == EVERYBODY and fault.fault not in AT_ONCE:
        raise SettingsError(
            f"{place}.who is all; only kill, clock and faults of links can happen to all at once"
        )
    if fault.fault.of_hosts != (fault.who == REMOTE):
        raise SettingsError(
            f"{place}.who is {fault.who}; drop and shape happen to remote, and nothing else does"
        )
    if fault.who == REMOTE and not options.remote:
        raise SettingsError(f"{place}.who is remote; how many learners are, remote must tell")
    if fault.fault in STRANGERS and fault.who != SUPERVISOR:
        raise SettingsError(
            f"{place}.who is {fault.who}; {fault.fault} happens to the supervisor alone"
        )
    if fault.fault.of_links and fault.who in (ANYBODY, SYNCER, SUPERVISOR):
        raise SettingsError(
            f"{place}.who is {fault.who}; {fault.fault} happens to the links of a learner, or of "
            "all: link tells which"
        )
    learners = (LEARNER, *options.names)
    if fault.fault is FaultKind.HANG and fault.who not in learners:
        raise SettingsError(f"{place}.who is {fault.who}; hang happens to learners alone")
    if fault.fault is FaultKind.SECOND and fault.who not in (*learners, SUPERVISOR):
        raise SettingsError(
            f"{place}.who is {fault.who}; second happens to learners and the supervisor alone"
        )
    if fault.fault is FaultKind.HANG and options.file.task != SLEEPING:
        raise SettingsError(f"{place}.fault is hang; only the steps of {SLEEPING} can")


def _check_values(fault: PlannedFault, place: str) -> None:
    if fault.at_s and (fault.every_s is not None or fault.times != 1):
        raise SettingsError(
            f"{place} has at_s and every_s or times; at_s tells all times by itself"
        )
    for key in ("for_s", "every_s", "bytes_s", "mean_bytes", "turn_s"):
        value = getattr(fault, key)
        if value is not None and not 0 < value < inf:
            raise SettingsError(f"{place}.{key} is {value}; it must be above 0, and finite")
    if not all(0 <= at_s < inf for at_s in fault.at_s):
        raise SettingsError(f"{place}.at_s is {list(fault.at_s)}; each must be at least 0")
    if not 1 <= fault.times <= TIMES_MOST:
        raise SettingsError(f"{place}.times is {fault.times}; it must be from 1 to {TIMES_MOST}")
    if fault.fault in STRANGERS and fault.for_s < STRANGERS_LEAST_S:
        raise SettingsError(
            f"{place}.for_s is {fault.for_s}; {fault.fault} must last at least "
            f"{STRANGERS_LEAST_S:g} s, since a hub closes such connections after 5 s"
        )
    if not 0 < abs(fault.jump_s) <= JUMP_MOST_S:
        raise SettingsError(
            f"{place}.jump_s is {fault.jump_s}; it must be from {-JUMP_MOST_S:g} to "
            f"{JUMP_MOST_S:g}, and not 0"
        )
    if fault.count > COUNT_MOST:
        raise SettingsError(f"{place}.count is {fault.count}; it must be at most {COUNT_MOST}")
    for key in ("every", "count"):
        if getattr(fault, key) < 1:
            raise SettingsError(f"{place}.{key} is {getattr(fault, key)}; it must be at least 1")
    for key in ("latency_s", "jitter_s"):
        if not 0 <= getattr(fault, key) < inf:
            raise SettingsError(f"{place}.{key} is {getattr(fault, key)}; it must be at least 0")
    if fault.turn_s < TURN_LEAST_S:
        raise SettingsError(
            f"{place}.turn_s is {fault.turn_s}; it must be at least {TURN_LEAST_S:g}"
        )
    if not RATE.fullmatch(fault.rate) or not float(fault.rate.rstrip(ascii_lowercase)):
        raise SettingsError(
            f"{place}.rate is {fault.rate!r}; it must be a bandwidth above 0 such as 2mbit, as "
            "tc reads it"
        )
    if not 0 < fault.share <= 1:
        raise SettingsError(f"{place}.share is {fault.share}; it must be above 0, and at most 1")
    if not 1 < fault.factor < inf:
        raise SettingsError(f"{place}.factor is {fault.factor}; it must be above 1, and finite")


def _hint(key: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {near[0]}?" if near else f"; it must be one of {', '.join(known)}"
