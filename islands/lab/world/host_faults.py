"""Faults of processes, disks and single paths of the network, and how often a seed draws them.

================  ===============================================================================
`Freeze`          processes are stopped and go on later, as by SIGSTOP and SIGCONT, or as if
                  something held the interpreter: their links stay open, and their clocks go on
`BadDisk`         for a while a disk is full, fails, or is slow
`Flip`            a host crashes, and meanwhile a bit flips in an older slot on its disk
`Reset`           all sessions between two hosts break, in the middle of a message
`Flap`            a path is cut and heals, again and again
`BadPath`         for a while the network between two hosts drops, repeats, changes and delays
`SecondSyncer`    a second syncer is started on another host, over the same journal
`Inflate`         a learner's weights grow by a large factor, as by a broken device
================  ===============================================================================

Each draws from a source of chance of its own, so that a new one changes no other fault.
"""

import random
from dataclasses import dataclass, replace

from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.tape.simulation_entries import FAILING, FULL, SLOW_DISK
from messaging.simulation.network import Route


@dataclass(frozen=True, slots=True)
class Freeze:
    """Processes are stopped at `at_s`, and go on `for_s` later."""

    at_s: float
    names: tuple[str, ...]
    for_s: float


@dataclass(frozen=True, slots=True)
class BadDisk:
    """The disk of a syncer or supervisor is full, failing or slow for `for_s`.

    `kind` is one of `DISK_KINDS`. A process that cannot begin for want of its disk is restarted.
    """

    at_s: float
    name: str
    kind: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Flip:
    """A syncer or supervisor crashes, and restarts after `down_s` from a disk with a flipped bit.

    The bit is in the older slot of a pair, so nothing that was committed may be lost.
    """

    at_s: float
    name: str
    down_s: float


@dataclass(frozen=True, slots=True)
class Reset:
    """All sessions between two hosts break at once."""

    at_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Flap:
    """The path between two hosts is cut for `cut_s` and healed for `cut_s`, `times` in turn."""

    at_s: float
    source: str
    target: str
    cut_s: float
    times: int


@dataclass(frozen=True, slots=True)
class BadPath:
    """The path from one host to another, one way only, behaves like `route` for `for_s`."""

    at_s: float
    source: str
    target: str
    route: Route
    for_s: float


@dataclass(frozen=True, slots=True)
class SecondSyncer:
    """A second syncer starts over the same journal; the first may be frozen for `frozen_s`."""

    at_s: float
    frozen_s: float


@dataclass(frozen=True, slots=True)
class Inflate:
    """A learner's weights are multiplied by `factor`."""

    at_s: float
    name: str
    factor: float


HostFault = Freeze | BadDisk | Flip | Reset | Flap | BadPath | SecondSyncer | Inflate

DISK_KINDS = (FULL, FAILING, SLOW_DISK)

DISK_SLOWNESS = 20.0
"""How many times as long a write takes on a slow disk."""

KINDS = (
    *("freeze", "freeze", "freeze", "disk", "disk", "flip"),
    *("reset", "flap", "path", "path", "second", "inflate"),
)
"""Kinds of these faults, each as often as its weight in the draw."""


def draw_host_faults(
    rng: random.Random, learners: tuple[str, ...], heal_s: float, route: Route
) -> list[HostFault]:
    """Draw the faults of a run's processes, disks and paths; a third of the runs have none."""
    faults: list[HostFault] = []
    for _ in range(rng.choice((0, 0, 1, 2, 3, 5))):
        at_s = rng.uniform(0.0, heal_s)
        for_s = rng.choice((0.1, 0.4, 1.0, 2.5))
        faults.append(_draw_one(rng, learners, at_s, for_s, route))
    return faults


def _draw_one(
    rng: random.Random, learners: tuple[str, ...], at_s: float, for_s: float, route: Route
) -> HostFault:
    everybody = (SUPERVISOR, SYNCER, *learners)
    hub, learner = rng.choice((SUPERVISOR, SYNCER)), rng.choice(learners)
    one, other = rng.sample((learner, SUPERVISOR, SYNCER), 2)
    match rng.choice(KINDS):
        case "freeze":
            count = min(rng.choice((1, 1, 1, 2, len(everybody))), len(everybody))
            return Freeze(at_s, tuple(sorted(rng.sample(everybody, count))), for_s)
        case "disk":
            return BadDisk(at_s, hub, rng.choice(DISK_KINDS), for_s)
        case "flip":
            return Flip(at_s, hub, rng.choice((0.0, 0.3, for_s)))
        case "reset":
            return Reset(at_s, one, other)
        case "flap":
            return Flap(at_s, one, other, rng.choice((0.05, 0.2, 0.5)), rng.choice((2, 5, 10)))
        case "path":
            return BadPath(at_s, one, other, _draw_path(rng, route), for_s)
        case "second":
            return SecondSyncer(at_s, rng.choice((0.0, for_s)))
        case _:
            return Inflate(at_s, learner, rng.choice((30.0, 1e3, 1e6)))


def _draw_path(rng: random.Random, route: Route) -> Route:
    return replace(
        route,
        latency_s=route.latency_s + rng.choice((0.0, 0.2)),
        jitter_s=route.jitter_s + rng.choice((0.0, 0.1)),
        drop=rng.choice((0.0, 0.05, 0.2)),
        duplicate=rng.choice((0.0, 0.2)),
        corrupt=rng.choice((0.0, 0.02, 0.2)),
    )
