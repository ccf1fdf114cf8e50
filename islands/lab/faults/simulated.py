"""A scenario as `islands.lab.world` plays it: the same actors, on a virtual clock.

=========================  =====================================================================
on real processes          on the virtual clock
=========================  =====================================================================
kill, segfault, exit,      a process crashes, with what its disk had not made durable
crash
terminate                  a learner leaves by itself; of syncer and supervisor there is no such
                           thing
freeze, hold_gil,          a process stands still
block_loop
straggle                   a learner's steps take longer
cut, drop of all packets   a network partition between the hosts, or a way of it
flap                       several of them
reset                      all sessions between the hosts break, once
latency, bandwidth,        the paths between the hosts are so
duplicate, drop of some
hang, second, half_open,   nothing
garbage, clock, dribble,
flip, shape
=========================  =====================================================================

Learners compute with NumPy on a toy, whatever the scenario's task is; steps take as long as its
`step_s`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil

from islands.lab.faults.findings import NO_GAP, Control, Finding, Played, finding_of
from islands.lab.faults.schedule import Strike, Struck, end_s, strikes_of
from islands.lab.settings.chaos import ChaosOptions, Direction, FaultKind, Peer, PlannedFault
from islands.lab.world.faults import Cut, Fault, Kill, Leave, Scenario, Slow
from islands.lab.world.host_faults import BadPath, Freeze, Reset
from islands.lab.world.trial import play as play_trial
from islands.lab.world.world import LearnerHost
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.tape.kinds import read
from messaging.simulation.network import Route

RESTART_S = 0.3
"""How long a killed process is away, as the supervisor's first restart takes about so long."""
SPARE_S = 4.0
"""For how long the fleet must train after the last fault."""
SLOWEST = 40.0
"""By how much a run may be slower than its learners at their fastest."""
STEP_S = 0.02
ROUTE = Route(latency_s=0.001, jitter_s=0.001, connect_timeout_s=1.0)
"""The network while no fault lasts."""


def scenario_of(options: ChaosOptions) -> Scenario:
    """Return the scenario with those of its faults that the simulation can express."""
    hosts = {name: LearnerHost(step_s=options.step_s or STEP_S) for name in options.names}
    strikes = strikes_of(options)
    heal_s = options.control_s + end_s(strikes)
    fleet = sum(host.batch_tokens / host.step_s for host in hosts.values())
    return Scenario(
        seed=options.seed,
        settings=replace(options.file.run, budget_tokens=int(fleet * (heal_s + SPARE_S))),
        hosts=hosts,
        route=ROUTE,
        work_s=(0.0005, 0.004),
        shards=16,
        moment_piece_bytes=1100,
        faults=tuple(fault for strike in strikes for fault in _faults(strike, options.control_s)),
        heal_s=heal_s,
        limit_s=SLOWEST * (heal_s + SPARE_S),
    )


def untold(options: ChaosOptions) -> list[str]:
    """Return a sentence for each fault of a scenario that the simulation cannot express."""
    told: dict[str, None] = {}
    for strike in strikes_of(options):
        if not list(_faults(strike, 0.0)):
            who = ", ".join(strike.victims)
            told[f"{strike.kind} of {who} has no equivalent in the simulation: left out"] = None
    return list(told)


def play(options: ChaosOptions, say: Callable[[str], object]) -> Played:
    """Play a scenario on a virtual clock, and judge its history; tell first what is left out.

    What is measured of steps is left out: they cost nothing there.
    """
    left_out = untold(options)
    for sentence in left_out:
        say(sentence)
    scenario = scenario_of(options)
    outcome = play_trial(scenario)
    lines = read(outcome.lines)
    struck = [
        Struck(
            strike,
            options.control_s + strike.at_s,
            options.control_s + strike.ends_s,
            options.control_s + strike.until_s,
        )
        for strike in strikes_of(options)
        if list(_faults(strike, 0.0))
    ]
    nothing = Control(0.0, options.control_s, NO_GAP, {})
    timing = options.file.run.timing
    findings: list[Finding] = [
        finding_of(each, struck, options.names, [], lines, nothing, timing) for each in struck
    ]
    return Played(
        tuple(findings),
        None,
        outcome.violations,
        tuple(lines),
        outcome.lines,
        tuple(left_out),
    )


def _faults(strike: Strike, control_s: float) -> Iterator[Fault]:
    """Yield what a strike is in the simulation: nothing if it has no equivalent there."""
    at_s, for_s = control_s + strike.at_s, strike.fault.for_s
    match strike.kind:
        case FaultKind.KILL | FaultKind.SEGFAULT | FaultKind.EXIT | FaultKind.CRASH:
            away_s = tuple(for_s if name == SUPERVISOR else RESTART_S for name in strike.victims)
            yield Kill(at_s, strike.victims, silent=False, down_s=away_s)
        case FaultKind.TERMINATE:
            (name,) = strike.victims
            if name not in (SUPERVISOR, SYNCER):
                yield Leave(at_s, name, for_s)
        case FaultKind.STRAGGLE:
            (name,) = strike.victims
            if name not in (SUPERVISOR, SYNCER):
                yield Slow(at_s, name, strike.fault.factor, for_s)
        case FaultKind.CUT | FaultKind.DROP if strike.fault.every == 1:
            for name in strike.victims:
                yield from _cuts(strike.fault, name, at_s, for_s)
        case FaultKind.FLAP:
            turn_s = strike.fault.turn_s
            for index in range(ceil(for_s / (2 * turn_s))):
                for name in strike.victims:
                    yield from _cuts(strike.fault, name, at_s + 2 * index * turn_s, turn_s)
        case FaultKind.FREEZE | FaultKind.HOLD_GIL | FaultKind.BLOCK_LOOP:
            yield Freeze(at_s, strike.victims, for_s)
        case FaultKind.RESET:
            for name in strike.victims:
                for peer in _peers(strike.fault):
                    yield Reset(at_s, name, peer)
        case FaultKind.LATENCY | FaultKind.BANDWIDTH | FaultKind.DUPLICATE | FaultKind.DROP:
            for name in strike.victims:
                yield from _bad_paths(strike.fault, name, at_s, for_s)
        case _:
            return


def _peers(fault: PlannedFault) -> tuple[str, ...]:
    """Return those to whom the links lead that suffer a fault."""
    return (SUPERVISOR, SYNCER) if fault.link is Peer.BOTH else (fault.link.value,)


def _cuts(fault: PlannedFault, name: str, at_s: float, for_s: float) -> Iterator[Cut]:
    """Yield the partitions between a learner and those of its links that are cut."""
    for peer in _peers(fault):
        ends = (peer, name) if fault.way is Direction.DOWN else (name, peer)
        yield Cut(at_s, *ends, fault.way is not Direction.BOTH, for_s)


def _bad_paths(fault: PlannedFault, name: str, at_s: float, for_s: float) -> Iterator[BadPath]:
    """Yield a path for each way of a learner's links that suffers a fault."""
    for peer in _peers(fault):
        if fault.way is not Direction.DOWN:
            yield BadPath(at_s, name, peer, _route(fault), for_s)
        if fault.way is not Direction.UP:
            yield BadPath(at_s, peer, name, _route(fault), for_s)


def _route(fault: PlannedFault) -> Route:
    """Return the behaviour of a path that suffers a fault."""
    match fault.fault:
        case FaultKind.LATENCY:
            return replace(ROUTE, latency_s=fault.latency_s, jitter_s=fault.jitter_s)
        case FaultKind.BANDWIDTH:
            return replace(ROUTE, bandwidth_bytes_per_s=fault.bytes_s)
        case FaultKind.DROP:
            return replace(ROUTE, drop=1 / fault.every)
        case _:
            return replace(ROUTE, duplicate=fault.share)
