"""One trial: play a scenario in a world of its own, then check its history."""

import asyncio
from dataclasses import dataclass

from islands.files.tape_writing import MemoryTape
from islands.lab.checker import Limits, Violation, judge
from islands.lab.world.faults import (
    Cut,
    Drain,
    Fault,
    Isolate,
    Kill,
    Leave,
    Pause,
    Poison,
    Scenario,
    Slow,
    Weather,
)
from islands.lab.world.host_deeds import Deed, heal, host_deeds, mend_hosts, start
from islands.lab.world.world import BATCHES_PER_SHARD, Costs, NumpyTrainers, Trainers, World
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.messages.control import Verb
from islands.protocol.tape import simulation_entries
from messaging.simulation.network import Route
from messaging.simulation.virtual_time import run_virtual

MAILBOX_MOST = 256
"""Most messages that may wait in a mailbox of a simulated world; far fewer do in practice."""

LOOK_S = 0.25
WRITE_WAIT_S = 0.5
WRITE_LOOK_S = 0.0004


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial: its tape, the violations found in it, and its virtual end time."""

    scenario: Scenario
    lines: tuple[bytes, ...]
    violations: tuple[Violation, ...]
    ended_s: float


def play(scenario: Scenario, trainers: Trainers | None = None) -> Outcome:
    """Play a scenario on a virtual clock and check its history.

    Args:
        scenario: the scenario.
        trainers: makes what its learners compute with; by default NumPy on the toy.
    """
    tape = MemoryTape()
    live = _live(scenario, tape, trainers)
    ended_s = run_virtual(live, limit_s=scenario.limit_s + 100.0)
    lines = tuple(tape.lines)
    return Outcome(scenario, lines, tuple(judge(lines, limits(scenario))), ended_s)


def limits(scenario: Scenario) -> Limits:
    """Return the limits that a scenario's run must keep."""
    return Limits.of(
        scenario.settings,
        _world(scenario, MemoryTape()).layout,
        batch_tokens={name: host.batch_tokens for name, host in scenario.hosts.items()},
        records_per_shard=BATCHES_PER_SHARD,
        mailbox_most=MAILBOX_MOST,
    )


def trainers_of(scenario: Scenario) -> NumpyTrainers:
    """Return what makes the trainers of a scenario's learners."""
    return NumpyTrainers(scenario.settings, scenario.shards, scenario.moment_piece_bytes)


def _world(scenario: Scenario, tape: MemoryTape, trainers: Trainers | None = None) -> World:
    return World(
        scenario.settings,
        dict(scenario.hosts),
        seed=scenario.seed,
        tape=tape,
        costs=Costs(scenario.work_s, route=scenario.route),
        trainers=trainers or trainers_of(scenario),
    )


async def _live(scenario: Scenario, tape: MemoryTape, trainers: Trainers | None) -> float:
    """Inject the faults, heal, and wait for the end of the run; returns its virtual time."""
    world = _world(scenario, tape, trainers)
    loop = asyncio.get_running_loop()
    world.start_all()
    for at_s, deed in _timeline(scenario):
        await asyncio.sleep(max(0.0, at_s - loop.time()))
        await deed(world)
    await asyncio.sleep(max(0.0, scenario.heal_s - loop.time()))
    _mend(world, scenario)
    await _resume_at_last(world, scenario)
    while loop.time() < scenario.limit_s and not world.failures:
        if world.finished is not None and not world.processes.names():
            break
        _bring_back(world, scenario)
        await asyncio.sleep(LOOK_S)
    ended_s = loop.time()
    for name in sorted(world.processes.names()):
        world.note(simulation_entries.LeftOver(name))
    await world.kill_all()
    return ended_s


def _mend(world: World, scenario: Scenario) -> None:
    """Heal the network and start every process; from now on no fault occurs."""
    world.network.route = scenario.route
    world.network.heal_all()
    mend_hosts(world)
    world.slow.clear()
    if world.finished is None:
        world.start_all()
    world.note(simulation_entries.Healed(scenario.recovery_s, scenario.period_s))


def _bring_back(world: World, scenario: Scenario) -> None:
    """Restart learners that left or were drained later than planned, while the run goes on."""
    syncer = world.syncer_state
    if world.finished is None and syncer is not None and syncer.core.closing is None:
        for fault in scenario.faults:
            if isinstance(fault, Leave | Drain):
                world.start(fault.name)


async def _resume_at_last(world: World, scenario: Scenario) -> None:
    """Resume a run that an operator may have paused, until the supervisor has answered."""
    if not any(isinstance(fault, Pause) for fault in scenario.faults):
        return
    while world.finished is None:
        answer = await world.command(Verb.RESUME)
        if answer is not None:
            return
        await asyncio.sleep(LOOK_S)


def _timeline(scenario: Scenario) -> list[tuple[float, Deed]]:
    """All actions on the world before it is healed, in order of time."""
    deeds: list[tuple[float, Deed]] = []
    for fault in scenario.faults:
        deeds += _deeds(fault, scenario)
    return sorted(
        [(at_s, deed) for at_s, deed in deeds if at_s < scenario.heal_s], key=lambda item: item[0]
    )


def _deeds(fault: Fault, scenario: Scenario) -> list[tuple[float, Deed]]:
    match fault:
        case Kill(at_s, names, silent, down_s, in_write):
            wait_s = WRITE_WAIT_S if in_write else 0.0
            back_s = [at_s + wait_s + down for down in down_s]
            starts = [(back, start(name)) for name, back in zip(names, back_s, strict=True)]
            return [(at_s, _kill(names, silent=silent, wait_s=wait_s)), *starts]
        case Leave(at_s, name, away_s):
            return [(at_s, _leave(name)), (at_s + away_s, start(name))]
        case Cut(at_s, source, target, one_way, for_s):
            return [
                (at_s, _cut(source, target, one_way=one_way)),
                (at_s + for_s, heal(source, target)),
            ]
        case Isolate(at_s, name, for_s):
            return [(at_s, _isolate(name)), (at_s + for_s, _rejoin(name))]
        case Poison(at_s, name):
            return [(at_s, _poison(name))]
        case Pause(at_s, for_s):
            return [(at_s, _command(Verb.PAUSE)), (at_s + for_s, _command(Verb.RESUME))]
        case Drain(at_s, name, away_s):
            return [(at_s, _command(Verb.DRAIN, name)), (at_s + away_s, start(name))]
        case Weather(at_s, route, for_s):
            return [(at_s, _weather(route)), (at_s + for_s, _weather(scenario.route))]
        case Slow(at_s, name, factor, for_s):
            return [(at_s, _slow(name, factor)), (at_s + for_s, _slow(name, 1.0))]
        case _:
            return host_deeds(fault, scenario.route)


# --- deeds: each records its fault on the tape, if it had an effect -------------------------------


def _kill(names: tuple[str, ...], *, silent: bool, wait_s: float) -> Deed:
    async def deed(world: World) -> None:
        for _ in range(round(wait_s / WRITE_LOOK_S)):
            if world.disks[SYNCER].syncing:
                break
            await asyncio.sleep(WRITE_LOOK_S)
        died = [name for name in names if await world.kill(name, silent=silent)]
        if died:
            world.note(simulation_entries.Fault("crash" if silent else "kill", died))

    return deed


def _command(verb: Verb, target: str = "") -> Deed:
    async def deed(world: World) -> None:
        answer = await world.command(verb, target)
        if answer is not None and answer.done and verb is not Verb.RESUME:
            world.note(simulation_entries.Fault(verb.value, [target] if target else []))

    return deed


def _leave(name: str) -> Deed:
    async def deed(world: World) -> None:
        learner = world.learner(name)
        if learner is not None:
            world.note(simulation_entries.Fault("leave", [name]))
            learner.leave("asked to")

    return deed


def _cut(source: str, target: str, *, one_way: bool) -> Deed:
    async def deed(world: World) -> None:
        world.network.cut(source, target, one_way=one_way)
        kind = "one-way cut" if one_way else "cut"
        world.note(simulation_entries.Fault(kind, [source, target]))

    return deed


def _isolate(name: str) -> Deed:
    async def deed(world: World) -> None:
        for other in (SUPERVISOR, SYNCER):
            world.network.cut(name, other)
        world.note(simulation_entries.Fault("isolate", [name]))

    return deed


def _rejoin(name: str) -> Deed:
    async def deed(world: World) -> None:
        for other in (SUPERVISOR, SYNCER):
            world.network.heal(name, other)

    return deed


def _poison(name: str) -> Deed:
    async def deed(world: World) -> None:
        if world.poison(name):
            world.note(simulation_entries.Fault("poison", [name]))

    return deed


def _weather(route: Route) -> Deed:
    async def deed(world: World) -> None:
        if route != world.costs.route:
            world.note(simulation_entries.Fault("weather", []))
        world.network.route = route

    return deed


def _slow(name: str, factor: float) -> Deed:
    async def deed(world: World) -> None:
        if factor > 1:
            world.note(simulation_entries.Fault("slow", [name]))
        world.slow[name] = factor

    return deed
