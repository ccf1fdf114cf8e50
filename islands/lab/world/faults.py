"""Faults, and schedules of them drawn from a seed.

===========  ====================================================================================
`Kill`       processes crash at once (several: together), and their links close, or (silently) do
             not, as after a power loss; the syncer's and the supervisor's disks lose or tear
             writes that were not synced
`Leave`      a learner departs on its own will
`Cut`        a network partition between two hosts, or in one direction only; after healing, the
             held messages arrive late, possibly after their sender has opened a new link
`Isolate`    a learner is cut from supervisor and syncer: it goes on stepping, is evicted, and
             comes back as a zombie
`Weather`    for a while the network drops, duplicates and delays messages
`Slow`       for a while a learner's steps take longer
`Poison`     a learner's weights become NaN
`Pause`      an operator pauses the run, and resumes it
`Drain`      an operator drains a learner
===========  ====================================================================================

Faults of single processes, disks and paths are in `host_faults.py`.

Processes that were killed or left are restarted after a while. All faults that remain at `heal_s`
end then: all is healed and started, and the run must come to its end.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from islands.lab.toys.toy import TOY_SHAPES
from islands.lab.world.drawn_settings import draw_settings
from islands.lab.world.host_faults import BadDisk, HostFault, draw_host_faults
from islands.lab.world.world import LearnerHost
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.run import (
    LearnerWaits,
    RunSettings,
)
from islands.syncer.journal_writer import DISK_RETRY_S
from messaging.envelope import NOMINAL_HEADER_BYTES
from messaging.simulation.network import Route


@dataclass(frozen=True, slots=True)
class Kill:
    """Processes crash at `at_s`; each is restarted after its time of `down_s`.

    `in_write` delays the kill for a short time, until a sync of the syncer's disk is under way.
    """

    at_s: float
    names: tuple[str, ...]
    silent: bool
    down_s: tuple[float, ...]
    in_write: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """A learner leaves, and a new process of its name starts after `away_s`."""

    at_s: float
    name: str
    away_s: float


@dataclass(frozen=True, slots=True)
class Cut:
    """No message passes from one host to another, nor back unless `one_way`, for `for_s`."""

    at_s: float
    source: str
    target: str
    one_way: bool
    for_s: float


@dataclass(frozen=True, slots=True)
class Isolate:
    """A learner reaches neither supervisor nor syncer for `for_s`."""

    at_s: float
    name: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Weather:
    """The whole network behaves like `route` for `for_s`."""

    at_s: float
    route: Route
    for_s: float


@dataclass(frozen=True, slots=True)
class Slow:
    """A learner's steps take `factor` times as long for `for_s`."""

    at_s: float
    name: str
    factor: float
    for_s: float


@dataclass(frozen=True, slots=True)
class Poison:
    """A learner's weights become NaN."""

    at_s: float
    name: str


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator pauses the run, and resumes it after `for_s`."""

    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class Drain:
    """An operator drains a learner; a new process of its name starts after `away_s`."""

    at_s: float
    name: str
    away_s: float


Fault = Kill | Leave | Cut | Isolate | Weather | Slow | Poison | Pause | Drain | HostFault


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that one seed decides.

    Attributes:
        seed: seed of the world's randomness.
        settings: settings of the run.
        hosts: the learners' machines by name.
        route: behaviour of the network without faults.
        work_s: least and most seconds that a piece of work takes, a sync of the journal as well.
        shards: number of virtual shards per pass.
        moment_piece_bytes: most bytes of a piece of the moments that a state donor sends.
        faults: faults in the order of their times.
        heal_s: time at which all is healed.
        limit_s: time by which the run must have ended.
    """

    seed: int
    settings: RunSettings
    hosts: Mapping[str, LearnerHost]
    route: Route
    work_s: tuple[float, float]
    shards: int
    moment_piece_bytes: int
    faults: tuple[Fault, ...]
    heal_s: float
    limit_s: float

    @property
    def recovery_s(self) -> float:
        """Time within which all recover after healing: detection, dialling, admission and set-up.

        A step that began while its learner was slow is still slow to its end, and whoever found a
        disk full or failing tries again after a while.
        """
        timing = self.settings.timing
        waits_s = timing.evict_s + 2 * self.dial_longest_s + 2 * timing.heartbeat_s
        last_steps_s = [
            2 * fault.factor * self.hosts[fault.name].step_s
            for fault in self.faults
            if isinstance(fault, Slow)
        ]
        waits_s = timing.scaled(waits_s) + self.route.retransmit_s + 2 * self.slowest_step_s
        retry_s = DISK_RETRY_S if any(isinstance(f, BadDisk) for f in self.faults) else 0.0
        return waits_s + max(last_steps_s, default=0.0) + retry_s

    @property
    def period_s(self) -> float:
        """Time of a round for every fragment, and of the retransmission of an update after it.

        A round waits for the steps before it, or for the syncer's worker, which does one inspection
        per learner, a merge and a record, or for copies of snapshots to the host.
        """
        settings, hosts = self.settings, self.hosts.values()
        rounds_s = settings.fragments * (len(self.hosts) + 2) * max(self.work_s)
        copies_s = settings.fragments * 2 * max(h.copy_s for h in hosts)
        interval_s = max(settings.interval_steps * self.slowest_step_s, rounds_s, copies_s)
        return interval_s + settings.timing.scaled(2 * settings.timing.resend_s)

    @property
    def slowest_step_s(self) -> float:
        """Mean step time of the slowest learner."""
        return max(host.step_s for host in self.hosts.values())

    @property
    def dial_longest_s(self) -> float:
        """The longest wait between two attempts to dial, for patience 1."""
        return 5.0


NARROW = 4.0
MOMENT_PIECES_BYTES = (300, 1100, 4000)
"""Sizes of a piece of moments: they cut those of the toy model into eight pieces, two, or one."""

SLOWER_BY_WAITING = 4.0
"""By how much a run may take longer whose learners take a few steps and then wait for a merge."""

NO_MOMENTUM = 0.1
"""Share of learners whose inner optimizer keeps no moments."""

COPY_STEPS = (0.0, 0.0, 0.0, 0.1, 0.5, 1.5, 5.0)
"""Durations of the copy of a snapshot, in steps of a fleet of two."""

FLOAT32_BYTES = 4

KINDS = (
    *("kill", "kill", "kill", "leave"),
    *("cut", "cut", "isolate", "weather"),
    *("slow", "poison"),
)
"""Kinds of faults, each as often as its weight in the draw; commands are drawn separately."""

DEATHS_AT_ONCE = 0.15
"""Share of runs in which a role, or everybody, dies at once, besides what else happens."""

PAUSES = 0.6
"""Share of pauses among an operator's commands."""


def draw(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    rng = random.Random(f"scenario {seed}")
    moments = random.Random(f"moments {seed}")
    hosts = _draw_hosts(rng, moments, random.Random(f"copies {seed}"))
    heal_s = rng.uniform(3.0, 9.0)
    fleet = sum(host.batch_tokens / host.step_s for host in hosts.values())
    settings = draw_settings(rng, seed, hosts, budget_tokens=int(fleet * (heal_s + 10.0)))
    route = Route(
        latency_s=rng.choice((0.001, 0.005, 0.03)),
        jitter_s=rng.choice((0.0, 0.005, 0.05)),
        bandwidth_bytes_per_s=rng.choice((float("inf"), 1e6, _enough(settings, hosts))),
        retransmit_s=rng.choice((0.1, 0.5, 1.5)),
        connect_timeout_s=1.0,
    )
    drawn = _draw_faults(rng, tuple(hosts), heal_s, route)
    drawn += _draw_commands(random.Random(f"operator {seed}"), tuple(hosts), heal_s)
    drawn += _draw_deaths(random.Random(f"deaths {seed}"), tuple(hosts), heal_s)
    drawn += draw_host_faults(random.Random(f"hosts {seed}"), tuple(hosts), heal_s, route)
    faults = tuple(sorted(drawn, key=lambda fault: fault.at_s))
    slowest_s = max(host.step_s for host in hosts.values())
    limit_s = heal_s + 60.0 + 6 * heal_s + 200 * slowest_s
    if settings.learner_waits is LearnerWaits.AT_TAU:
        limit_s *= SLOWER_BY_WAITING
    work_s = rng.choice(((0.0005, 0.004), (0.0005, 0.004), (0.005, 0.05)))
    shards = rng.choice((8, 16))
    piece_bytes = moments.choice(MOMENT_PIECES_BYTES)
    return Scenario(
        *(seed, settings, hosts, route, work_s, shards),
        *(piece_bytes, faults, heal_s, limit_s),
    )


def _enough(settings: RunSettings, hosts: Mapping[str, LearnerHost]) -> float:
    """A narrow bandwidth in bytes/s per lane, which is `NARROW` times what the run needs.

    The run needs to send the whole model within an interval, and a control message within a
    heartbeat.
    """
    interval_s = settings.interval_steps * min(host.step_s for host in hosts.values())
    heartbeat_s = settings.timing.scaled(settings.timing.heartbeat_s)
    model_bytes = sum(FLOAT32_BYTES * prod(shape) for _, shape in TOY_SHAPES)
    bulk = (model_bytes + settings.fragments * NOMINAL_HEADER_BYTES) / interval_s
    return NARROW * max(bulk, NOMINAL_HEADER_BYTES / heartbeat_s)


def _draw_hosts(
    rng: random.Random, moments: random.Random, copies: random.Random
) -> dict[str, LearnerHost]:
    count = rng.choice((1, 2, 2, 3, 3, 3, 4, 5))
    step_s = rng.choice((0.05, 0.1, 0.2))
    factors = [rng.choice((1.0, 1.0, 1.0, 1.3, 4.0)) for _ in range(count)]
    return {
        f"learner-{number}": LearnerHost(
            step_s=step_s * factor * count / 2,
            noise=rng.choice((0.0, 0.1, 0.3)),
            setup_s=rng.choice((0.05, 0.3, 1.0)),
            batch_tokens=rng.choice((8, 8, 12)),
            momentum=0.0 if moments.random() < NO_MOMENTUM else 0.5,
            copy_s=step_s * factor * copies.choice(COPY_STEPS),
        )
        for number, factor in enumerate(factors)
    }


def _draw_faults(
    rng: random.Random, learners: tuple[str, ...], heal_s: float, route: Route
) -> list[Fault]:
    everybody = (SUPERVISOR, SYNCER, *learners)
    faults: list[Fault] = []
    for _ in range(rng.randrange(2, 9)):
        at_s = rng.uniform(0.0, rng.choice((1.5, heal_s, heal_s, heal_s)))
        for_s = rng.choice((0.2, 0.6, 1.5, 4.0))
        learner = rng.choice(learners)
        match rng.choice(KINDS):
            case "kill":
                count = rng.choice((1, 1, 1, 2, len(everybody)))
                names = tuple(sorted(rng.sample(everybody, min(count, len(everybody)))))
                down_s = tuple(rng.choice((0.0, 0.3, for_s)) for _ in names)
                silent, in_write = rng.choice((False, False, True)), rng.choice((False, True))
                faults.append(Kill(at_s, names, silent, down_s, in_write and SYNCER in names))
            case "leave":
                faults.append(Leave(at_s, learner, for_s))
            case "cut":
                one, other = rng.sample((learner, SUPERVISOR, SYNCER), 2)
                faults.append(Cut(at_s, one, other, rng.choice((False, True)), for_s))
            case "isolate":
                faults.append(Isolate(at_s, learner, for_s))
            case "poison":
                faults.append(Poison(at_s, learner))
            case "weather":
                faults.append(Weather(at_s, _draw_weather(rng, route), for_s))
            case "slow":
                faults.append(Slow(at_s, learner, rng.choice((3.0, 10.0)), for_s))
    return faults


def _draw_deaths(rng: random.Random, learners: tuple[str, ...], heal_s: float) -> list[Fault]:
    """Have supervisor and syncer of some runs die at once, or all learners, or everybody."""
    if rng.random() >= DEATHS_AT_ONCE:
        return []
    hub = (SUPERVISOR, SYNCER)
    names = rng.choice((hub, learners, (*hub, *learners)))
    down_s = tuple(rng.choice((0.1, 0.6, 2.0)) for _ in names)
    silent, in_write = rng.choice((False, False, True)), rng.choice((False, SYNCER in names))
    return [Kill(rng.uniform(0.5, heal_s), names, silent, down_s, in_write)]


def _draw_commands(rng: random.Random, learners: tuple[str, ...], heal_s: float) -> list[Fault]:
    """Draw the commands of an operator, who gives none in half of the runs."""
    commands: list[Fault] = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        at_s, for_s = rng.uniform(0.0, heal_s), rng.choice((0.1, 0.6, 2.0))
        if rng.random() < PAUSES:
            commands.append(Pause(at_s, for_s))
        else:
            commands.append(Drain(at_s, rng.choice(learners), for_s))
    return commands


def _draw_weather(rng: random.Random, route: Route) -> Route:
    return Route(
        latency_s=route.latency_s * rng.choice((1, 1, 10)),
        jitter_s=rng.choice((route.jitter_s, 0.1, 0.3)),
        bandwidth_bytes_per_s=rng.choice((route.bandwidth_bytes_per_s, 5e3)),
        drop=rng.choice((0.0, 0.02, 0.1)),
        duplicate=rng.choice((0.0, 0.1, 0.5)),
        retransmit_s=route.retransmit_s,
        connect_timeout_s=route.connect_timeout_s,
    )
