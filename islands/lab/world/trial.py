"""One trial: play a scenario in a world of its own, then check its history."""

import asyncio
from dataclasses import dataclass
from operator import itemgetter

from islands.files.tape_writing import MemoryTape
from islands.lab.checker import Violation, judge
from islands.lab.checker.evidence import Limits
from islands.lab.faults.fault import FaultKind
from islands.lab.world.checkpoints import Keeping
from islands.lab.world.fault_effects import SIMULATED, Effect, mend_disk, thaw
from islands.lab.world.scenario import Scenario
from islands.lab.world.world import Costs, NumpyTrainers, Trainers, World
from islands.protocol.messages.control import Verb
from islands.protocol.tape.simulation_entries import Healed, LeftOver
from messaging.simulation.virtual_time import run_virtual

LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial: its tape, the violations in it, and its virtual end time."""

    scenario: Scenario
    lines: tuple[bytes, ...]
    violations: tuple[Violation, ...]
    ended_s: float


def play(scenario: Scenario, trainers: Trainers | None = None) -> Outcome:
    """Play a scenario on a virtual clock, by default with NumPy trainers, and check its history."""
    tape = MemoryTape()
    course = live(world_of(scenario, tape, trainers), scenario)
    ended_s = run_virtual(course, limit_s=scenario.limit_s + 100.0)
    lines = tuple(tape.lines)
    return Outcome(scenario, lines, tuple(judge(lines, limits(scenario))), ended_s)


def limits(scenario: Scenario) -> Limits:
    return world_of(scenario, MemoryTape()).limits()


def trainers_of(scenario: Scenario) -> NumpyTrainers:
    return NumpyTrainers(scenario.settings, scenario.shards, scenario.moment_piece_bytes)


def world_of(scenario: Scenario, tape: MemoryTape, trainers: Trainers | None = None) -> World:
    wanted = scenario.checkpoints
    world = World(
        scenario.settings,
        dict(scenario.hosts),
        seed=scenario.seed,
        tape=tape,
        costs=Costs(scenario.work_s, route=scenario.route),
        trainers=trainers or trainers_of(scenario),
        keeping=None if wanted is None else Keeping(wanted, scenario.seed),
    )
    if scenario.standbys is not None:
        world.stand_by(scenario.standbys)
    return world


async def live(world: World, scenario: Scenario) -> float:
    """Inject the faults, heal, and wait for the end of the run; returns its virtual time."""
    loop = asyncio.get_running_loop()
    world.start_all()
    for at_s, effect in _timeline(scenario):
        await asyncio.sleep(max(0.0, at_s - loop.time()))
        done = effect(world)
        if done is not None:
            await done
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
        world.note(LeftOver(name))
    await world.kill_all()
    world.note_kept()
    return ended_s


def _timeline(scenario: Scenario) -> list[tuple[float, Effect]]:
    effects = [
        effect
        for injection in scenario.injections
        for effect in SIMULATED[injection.kind](injection, scenario.route)
        if effect[0] < scenario.heal_s
    ]
    return sorted(effects, key=itemgetter(0))


def _mend(world: World, scenario: Scenario) -> None:
    """Heal hosts and network, and start every process; from now on no fault occurs."""
    world.network.route = scenario.route
    world.network.heal_all()
    world.standing.wished = False
    for name in world.disks:
        mend_disk(world, name)
    world.network.clear_routes()
    thaw(world, world.processes.frozen)
    world.slow.clear()
    if world.finished is None:
        world.start_all()
    world.note(Healed(scenario.recovery_s, scenario.period_s))


def _bring_back(world: World, scenario: Scenario) -> None:
    """Restart learners that left or were drained later than planned, while the run goes on."""
    syncer = world.syncer_state
    if world.finished is None and syncer is not None and syncer.core.closing is None:
        for injection in scenario.of_kind(FaultKind.TERMINATE, FaultKind.DRAIN):
            world.start(injection.victims[0])


async def _resume_at_last(world: World, scenario: Scenario) -> None:
    """Resume a run that an operator may have paused, until the supervisor has answered."""
    if not scenario.of_kind(FaultKind.PAUSE):
        return
    while world.finished is None:
        answer = await world.command(Verb.RESUME)
        if answer is not None:
            return
        await asyncio.sleep(LOOK_S)
