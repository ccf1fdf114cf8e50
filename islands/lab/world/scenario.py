"""A scenario of the simulated world, drawn from a seed: hosts, settings, network and faults.

Processes that were killed or left are restarted after a while. All faults that remain at `heal_s`
end then: all is healed and started, and the run must come to its end. Each family of faults draws
from a source of chance of its own, so that a new one changes no other. `fault_effects.py` has what
each fault does.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from islands.lab.faults.fault import Direction, Fault, FaultKind, Injection
from islands.lab.toys.toy import TOY_SHAPES
from islands.lab.world.checkpoints import Checkpoints
from islands.lab.world.drawn_settings import draw_settings
from islands.lab.world.standbys import Wanted
from islands.lab.world.world import LearnerHost
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.choices import LearnerWaits
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.simulation_entries import FAILING, FULL, SLOW_DISK
from islands.syncer.journal import DISK_RETRY_S
from messaging.envelope import NOMINAL_HEADER_BYTES
from messaging.simulation.network import Route

DIAL_LONGEST_S = 5.0  # between two attempts to dial, for patience 1
NARROW = 4.0  # so many times as much as a run needs
MOMENT_PIECES_BYTES = (300, 1100, 4000)  # which make eight pieces of the toy's, two, or one
SLOWER_BY_WAITING = 4.0  # may a run be whose learners wait for merges
NO_MOMENTUM = 0.1  # of learners keep no moments
COPY_STEPS = (0.0, 0.0, 0.1, 0.5, 1.0, 1.5, 5.0)  # of a fleet of two, for the copy of a snapshot

ORDINARY = 0.2
"""Fraction of scenarios with each of these: no fault at all, one fragment, one learner that is
`MUCH_SLOWER`, one that now and then pauses."""

MUCH_SLOWER = 20.0
PAUSE_S, PAUSE_EVERY_S = 0.4, 4.0
"""The pauses of a learner: 2 s of every 20 at a patience of 0.2."""

FLOAT32_BYTES = 4

KINDS = (
    *(FaultKind.KILL, FaultKind.KILL, FaultKind.KILL, FaultKind.TERMINATE),
    *(FaultKind.CUT, FaultKind.CUT, FaultKind.ISOLATE, FaultKind.WEATHER),
    *(FaultKind.STRAGGLE, FaultKind.POISON),
)
"""Kinds of faults, each as often as its weight in the draw; commands are drawn separately."""

HOST_KINDS = (
    *(FaultKind.FREEZE, FaultKind.FREEZE, FaultKind.FREEZE, FaultKind.DISK, FaultKind.DISK),
    *(FaultKind.FLIP_ON_DISK, FaultKind.RESET, FaultKind.FLAP, FaultKind.PATH, FaultKind.PATH),
    *(FaultKind.SECOND_SYNCER, FaultKind.INFLATE),
)
"""Kinds of faults of processes, disks and single paths, likewise."""

DISK_KINDS = (FULL, FAILING, SLOW_DISK)
TAKING_OVER = 0.2  # of runs have standbys, one of which takes over
DEATHS_AT_ONCE = 0.15  # of runs have a role, or everybody, die at once, beside what else happens
PAUSES = 0.6  # of an operator's commands


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that one seed decides.

    `route` is the network without faults, `work_s` the least and most seconds of a piece of work, a
    sync of the journal as well. All is healed at `heal_s`, and the run must have ended by
    `limit_s`.
    """

    seed: int
    settings: RunSettings
    hosts: Mapping[str, LearnerHost]
    route: Route
    work_s: tuple[float, float]
    shards: int
    moment_piece_bytes: int
    injections: tuple[Injection, ...]
    heal_s: float
    limit_s: float
    checkpoints: Checkpoints | None = None
    standbys: Wanted | None = None

    def of_kind(self, *kinds: FaultKind) -> list[Injection]:
        return [injection for injection in self.injections if injection.kind in kinds]

    @property
    def recovery_s(self) -> float:
        """Time within which all recover after healing: detection, dialling, admission and set-up.

        A step that began while its learner was slow is still slow to its end, and whoever has met a
        disk full or failing tries again after a while.
        """
        timing = self.settings.timing
        waits_s = timing.evict_s + 2 * DIAL_LONGEST_S + 2 * timing.heartbeat_s
        last_steps_s = [
            2 * injection.fault.factor * self.hosts[injection.victims[0]].step_s
            for injection in self.of_kind(FaultKind.STRAGGLE)
        ]
        waits_s = timing.scaled(waits_s) + self.route.retransmit_s + 2 * self.slowest_step_s
        retry_s = DISK_RETRY_S if self.of_kind(FaultKind.DISK) else 0.0
        return waits_s + max(last_steps_s, default=0.0) + retry_s

    @property
    def period_s(self) -> float:
        """Time of a round for every fragment, and of the retransmission of an update after it.

        A round waits for the steps before it, or for the syncer's worker, which does one inspection
        per learner, a merge and a record, or for copies of snapshots to the host. A value is
        adopted between two steps, of which one takes a pause longer now and then.
        """
        settings, hosts = self.settings, self.hosts.values()
        rounds_s = settings.fragments * (len(self.hosts) + 2) * max(self.work_s)
        copies_s = settings.fragments * 2 * max(host.copy_s for host in hosts)
        interval_s = max(settings.interval_steps * self.slowest_step_s, rounds_s, copies_s)
        pause_s = max(host.pause_s for host in hosts)
        return interval_s + pause_s + settings.timing.scaled(2 * settings.timing.resend_s)

    @property
    def slowest_step_s(self) -> float:
        return max(host.step_s for host in self.hosts.values())


def draw(seed: int) -> Scenario:
    rng = random.Random(f"scenario {seed}")
    moments = random.Random(f"moments {seed}")
    hosts = _draw_hosts(rng, moments, random.Random(f"copies {seed}"))
    hosts = _uneven(random.Random(f"uneven {seed}"), hosts)
    learners, heal_s = tuple(hosts), rng.uniform(3.0, 9.0)
    fleet = sum(host.batch_tokens / host.step_s for host in hosts.values())
    settings = draw_settings(rng, seed, hosts, budget_tokens=int(fleet * (heal_s + 10.0)))
    ordinary = random.Random(f"ordinary {seed}")
    if ordinary.random() < ORDINARY:
        settings = replace(settings, fragments=1)
    route = Route(
        latency_s=rng.choice((0.001, 0.005, 0.03)),
        jitter_s=rng.choice((0.0, 0.005, 0.05)),
        bandwidth_bytes_per_s=rng.choice((float("inf"), 1e6, _narrow(settings, hosts))),
        retransmit_s=rng.choice((0.1, 0.5, 1.5)),
        connect_timeout_s=1.0,
    )
    host_faults = random.Random(f"hosts {seed}")
    injections = [
        *(_draw_fault(rng, learners, heal_s, route) for _ in range(rng.randrange(2, 9))),
        *_draw_commands(random.Random(f"operator {seed}"), learners, heal_s),
        *_draw_deaths(random.Random(f"deaths {seed}"), learners, heal_s),
        *(
            _draw_host_fault(host_faults, learners, heal_s, route)
            for _ in range(host_faults.choice((0, 0, 1, 2, 3, 5)))
        ),
    ]
    standbys, injections = _with_standbys(random.Random(f"standbys {seed}"), injections, heal_s)
    if ordinary.random() < ORDINARY:
        injections = []
    slowest_s = max(host.step_s + host.copy_s for host in hosts.values())
    limit_s = heal_s + 60.0 + 6 * heal_s + 200 * slowest_s
    if settings.learner_waits is LearnerWaits.AT_TAU:
        limit_s *= SLOWER_BY_WAITING
    return Scenario(
        seed=seed,
        settings=settings,
        hosts=hosts,
        route=route,
        work_s=rng.choice(((0.0005, 0.004), (0.0005, 0.004), (0.005, 0.05))),
        shards=rng.choice((8, 16)),
        moment_piece_bytes=moments.choice(MOMENT_PIECES_BYTES),
        injections=tuple(sorted(injections, key=lambda injection: injection.at_s)),
        heal_s=heal_s,
        limit_s=limit_s,
        checkpoints=_draw_checkpoints(random.Random(f"checkpoints {seed}")),
        standbys=standbys,
    )


def _draw_checkpoints(rng: random.Random) -> Checkpoints | None:
    """Have most runs take checkpoints; each sort of store takes its time."""
    if rng.random() < ORDINARY:
        return None
    store_s = rng.choice(((0.0, 0.01), (0.05, 0.5), (0.5, 3.0)))
    return Checkpoints(rng.choice((1, 2, 5, 20)), rng.choice((1, 2, 3)), store_s)


def _narrow(settings: RunSettings, hosts: Mapping[str, LearnerHost]) -> float:
    """Return a narrow bandwidth in bytes/s per lane, which is `NARROW` times what the run needs.

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


def _uneven(rng: random.Random, hosts: dict[str, LearnerHost]) -> dict[str, LearnerHost]:
    """Make one learner of some scenarios much slower, and have one pause now and then."""
    slow, pausing = rng.choice(list(hosts)), rng.choice(list(hosts))
    if rng.random() < ORDINARY and len(hosts) > 1:
        hosts[slow] = replace(hosts[slow], step_s=MUCH_SLOWER * hosts[slow].step_s)
    if rng.random() < ORDINARY:
        hosts[pausing] = replace(hosts[pausing], pause_s=PAUSE_S, pause_every_s=PAUSE_EVERY_S)
    return hosts


def _draw_fault(
    rng: random.Random, learners: tuple[str, ...], heal_s: float, route: Route
) -> Injection:
    everybody = (SUPERVISOR, SYNCER, *learners)
    at_s = rng.uniform(0.0, rng.choice((1.5, heal_s, heal_s, heal_s)))
    for_s = rng.choice((0.2, 0.6, 1.5, 4.0))
    learner = rng.choice(learners)
    kind = rng.choice(KINDS)
    fault = Fault(kind, for_s=for_s)
    match kind:
        case FaultKind.KILL:
            count = rng.choice((1, 1, 1, 2, len(everybody)))
            names = tuple(sorted(rng.sample(everybody, min(count, len(everybody)))))
            down_s = tuple(rng.choice((0.0, 0.3, for_s)) for _ in names)
            silent, in_write = rng.choice((False, False, True)), rng.choice((False, True))
            return kill(at_s, names, down_s, silent=silent, in_write=in_write and SYNCER in names)
        case FaultKind.CUT:
            one, other = rng.sample((learner, SUPERVISOR, SYNCER), 2)
            fault = replace(fault, way=rng.choice((Direction.BOTH, Direction.UP)))
            return Injection(fault, (one,), at_s, peer=other)
        case FaultKind.WEATHER:
            return Injection(fault, (), at_s, route=_draw_weather(rng, route))
        case FaultKind.STRAGGLE:
            return Injection(replace(fault, factor=rng.choice((3.0, 10.0))), (learner,), at_s)
        case _:
            return Injection(fault, (learner,), at_s)


def kill(
    at_s: float,
    names: tuple[str, ...],
    down_s: tuple[float, ...],
    *,
    silent: bool = False,
    in_write: bool = False,
) -> Injection:
    """Return the death of processes at once, each of which is started again after a time."""
    fault = Fault(FaultKind.KILL)
    return Injection(fault, names, at_s, down_s=down_s, silent=silent, in_write=in_write)


def _draw_deaths(rng: random.Random, learners: tuple[str, ...], heal_s: float) -> list[Injection]:
    """Have supervisor and syncer of some runs die at once, or all learners, or everybody."""
    if rng.random() >= DEATHS_AT_ONCE:
        return []
    hub = (SUPERVISOR, SYNCER)
    names = rng.choice((hub, learners, (*hub, *learners)))
    down_s = tuple(rng.choice((0.1, 0.6, 2.0)) for _ in names)
    silent, in_write = rng.choice((False, False, True)), rng.choice((False, SYNCER in names))
    return [kill(rng.uniform(0.5, heal_s), names, down_s, silent=silent, in_write=in_write)]


def _with_standbys(
    rng: random.Random, injections: list[Injection], heal_s: float
) -> tuple[Wanted | None, list[Injection]]:
    """Give some runs standbys, and faults of these, and have their syncer's machine be lost."""
    if rng.random() >= TAKING_OVER:
        return None, injections
    others = [each for each in injections if each.kind is not FaultKind.SECOND_SYNCER]
    wanted = Wanted(rng.choice((1, 1, 2)), rng.choice((0.2, 0.2, 1.0, 3.0, None)))
    fault = Fault(FaultKind.TAKE_OVER, for_s=rng.choice((0.3, 1.0, 2.5, 6.0)))
    at_s, silent = rng.uniform(0.5, 0.8 * heal_s), rng.choice((False, True))
    down_s = rng.uniform(0.1, 4.0), rng.choice((0.05, 0.4, 1.5))
    lost = Injection(fault, (), at_s, silent=silent, down_s=down_s)
    own = [_draw_standby_fault(rng, wanted.count, heal_s) for _ in range(rng.choice((0, 0, 1, 3)))]
    return wanted, [*others, lost, *own]


def _draw_standby_fault(rng: random.Random, count: int, heal_s: float) -> Injection:
    at_s, for_s = rng.uniform(0.0, heal_s), rng.choice((0.1, 0.4, 1.0, 2.5))
    name, peer = f"standby-{rng.randrange(count)}", rng.choice((SYNCER, SYNCER, SUPERVISOR))
    kind = rng.choice((FaultKind.KILL, FaultKind.DISK, FaultKind.CUT, FaultKind.RESET))
    if kind is FaultKind.KILL:
        return kill(at_s, (name,), (for_s,), silent=rng.choice((False, True)))
    disk = rng.choice(DISK_KINDS) if kind is FaultKind.DISK else ""
    return Injection(Fault(kind, for_s=for_s), (name,), at_s, peer=peer, disk=disk)


def _draw_commands(rng: random.Random, learners: tuple[str, ...], heal_s: float) -> list[Injection]:
    commands: list[Injection] = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        at_s, for_s = rng.uniform(0.0, heal_s), rng.choice((0.1, 0.6, 2.0))
        pauses = rng.random() < PAUSES
        victims = () if pauses else (rng.choice(learners),)
        kind = FaultKind.PAUSE if pauses else FaultKind.DRAIN
        commands.append(Injection(Fault(kind, for_s=for_s), victims, at_s))
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


def _draw_host_fault(
    rng: random.Random, learners: tuple[str, ...], heal_s: float, route: Route
) -> Injection:
    """Draw a fault of a run's processes, disks and paths."""
    at_s = rng.uniform(0.0, heal_s)
    for_s = rng.choice((0.1, 0.4, 1.0, 2.5))
    everybody = (SUPERVISOR, SYNCER, *learners)
    hub, learner = rng.choice((SUPERVISOR, SYNCER)), rng.choice(learners)
    one, other = rng.sample((learner, SUPERVISOR, SYNCER), 2)
    kind = rng.choice(HOST_KINDS)
    fault = Fault(kind, for_s=for_s)
    match kind:
        case FaultKind.FREEZE:
            count = min(rng.choice((1, 1, 1, 2, len(everybody))), len(everybody))
            return Injection(fault, tuple(sorted(rng.sample(everybody, count))), at_s)
        case FaultKind.DISK:
            return Injection(fault, (hub,), at_s, disk=rng.choice(DISK_KINDS))
        case FaultKind.FLIP_ON_DISK:
            return Injection(replace(fault, for_s=rng.choice((0.0, 0.3, for_s))), (hub,), at_s)
        case FaultKind.FLAP:
            turn_s, times = rng.choice((0.05, 0.2, 0.5)), rng.choice((2, 5, 10))
            fault = replace(fault, turn_s=turn_s, for_s=2 * turn_s * times)
            return Injection(fault, (one,), at_s, peer=other)
        case FaultKind.PATH:
            fault = replace(fault, way=Direction.UP)
            return Injection(fault, (one,), at_s, peer=other, route=_draw_path(rng, route))
        case FaultKind.SECOND_SYNCER:
            return Injection(replace(fault, for_s=rng.choice((0.0, for_s))), (), at_s)
        case FaultKind.INFLATE:
            factor = rng.choice((30.0, 1e3, 1e6))
            return Injection(replace(fault, factor=factor), (learner,), at_s)
        case _:
            return Injection(fault, (one,), at_s, peer=other)


def _draw_path(rng: random.Random, route: Route) -> Route:
    return replace(
        route,
        latency_s=route.latency_s + rng.choice((0.0, 0.2)),
        jitter_s=route.jitter_s + rng.choice((0.0, 0.1)),
        drop=rng.choice((0.0, 0.05, 0.2)),
        duplicate=rng.choice((0.0, 0.2)),
        corrupt=rng.choice((0.0, 0.02, 0.2)),
    )
