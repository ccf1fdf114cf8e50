"""Effects of faults on a simulated world, each with its time, and of their ends.

An effect records its fault on the tape, if it had one. What `SIMULATED` lacks has no equivalent on
a virtual clock.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import ceil

from islands.lab.faults.fault import Direction, FaultKind, Injection
from islands.lab.world.world import SPARE_SYNCER, World
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.messages.control import Verb
from islands.protocol.tape import simulation_entries as words
from islands.protocol.tape.simulation_entries import Fault
from messaging.simulation.network import Route

RESTART_S = 0.3
"""How long a killed process is away, as the supervisor's first restart takes about so long."""

WRITE_WAIT_S, WRITE_LOOK_S = 0.5, 0.0004
"""For how long a kill waits for a sync of the syncer's disk, and how often it looks."""

DISK_SLOWNESS = 20.0
"""How many times as long a write takes on a slow disk."""

Effect = Callable[[World], Awaitable[None] | None]
Effects = Iterator[tuple[float, Effect]]


def _lasting(injection: Injection, begin: Effect, end: Effect) -> Effects:
    yield injection.at_s, begin
    yield injection.at_s + injection.fault.for_s, end


# --- processes --------------------------------------------------------------------------------


def _kill(injection: Injection, _usual: Route) -> Effects:
    wait_s = WRITE_WAIT_S if injection.in_write else 0.0
    yield (
        injection.at_s,
        partial(kill, names=injection.victims, silent=injection.silent, wait_s=wait_s),
    )
    for index, name in enumerate(injection.victims):
        away_s = injection.fault.for_s if name == SUPERVISOR else RESTART_S
        away_s = injection.down_s[index] if injection.down_s else away_s
        yield injection.at_s + wait_s + away_s, partial(World.restart, name=name)


async def kill(world: World, names: tuple[str, ...], *, silent: bool, wait_s: float) -> None:
    """Kill processes, if possible in the middle of a write to the syncer's disk."""
    for _ in range(round(wait_s / WRITE_LOOK_S)):
        if world.disks[SYNCER].writing:
            break
        await asyncio.sleep(WRITE_LOOK_S)
    died = [name for name in names if await world.kill(name, silent=silent)]
    if died:
        world.note(Fault("crash" if silent else "kill", died))


def _leave(injection: Injection, _usual: Route) -> Effects:
    """Let a learner leave by itself; of syncer and supervisor there is no such thing."""
    (name,) = injection.victims

    def leave(world: World) -> None:
        learner = world.learner(name)
        if learner is not None:
            world.note(Fault("leave", [name]))
            learner.leave("asked to")

    return (
        _lasting(injection, leave, partial(World.restart, name=name))
        if _is_learner(name)
        else iter(())
    )


def _is_learner(name: str) -> bool:
    return name not in (SUPERVISOR, SYNCER)


def _freeze(injection: Injection, _usual: Route) -> Effects:
    """Stop processes, whose links stay open, and whose clocks go on."""
    names = injection.victims

    def freeze(world: World) -> None:
        stopped = [name for name in names if world.processes.freeze(name)]
        if stopped:
            world.note(Fault(words.FREEZE, stopped))

    return _lasting(injection, freeze, partial(thaw, names=names))


def thaw(world: World, names: tuple[str, ...]) -> None:
    """Let those of these processes go on that are stopped."""
    going = [name for name in names if world.processes.thaw(name)]
    if going:
        world.note(Fault(words.THAW, going))


def _slow(injection: Injection, _usual: Route) -> Effects:
    (name,) = injection.victims

    def slow(world: World, factor: float) -> None:
        if factor > 1:
            world.note(Fault("slow", [name]))
        world.slow[name] = factor

    begin, end = partial(slow, factor=injection.fault.factor), partial(slow, factor=1.0)
    return _lasting(injection, begin, end) if _is_learner(name) else iter(())


def _start_second_syncer(injection: Injection, usual: Route) -> Effects:
    """Start a second syncer over the same journal, unless one runs."""

    def start_second(world: World) -> None:
        if world.finished is None and SPARE_SYNCER not in world.processes:
            world.start_second_syncer()
            world.note(Fault(words.SECOND_SYNCER, [SPARE_SYNCER]))

    if injection.fault.for_s:
        yield from _freeze(replace(injection, victims=(SYNCER,)), usual)
    yield injection.at_s, start_second


def _take_over(injection: Injection, _usual: Route) -> Effects:
    """Lose the syncer's machine, or cut it from all others; a standby goes on in its place.

    Then the old one returns with its own disk. `down_s` says after how long the run's syncer is
    killed, and for how long.
    """

    async def lose(world: World) -> None:
        if world.finished is None:
            world.standing.wished = True
            if injection.silent:
                await kill(world, (SYNCER,), silent=True, wait_s=0.0)
            else:
                world.note(Fault("isolate", [SYNCER]))
                cut_off(world, world.network.cut)

    def come_back(world: World) -> None:
        cut_off(world, world.network.heal)
        world.restart(SYNCER)

    async def kill_owner(world: World) -> None:
        await kill(world, (world.standing.owner,), silent=injection.silent, wait_s=0.0)

    yield from _lasting(injection, lose, come_back)
    after_s, away_s = injection.down_s
    yield injection.at_s + after_s, kill_owner
    yield injection.at_s + away_s, lambda world: world.restart(world.standing.owner)


def cut_off(world: World, do: Callable[[str, str], object]) -> None:
    for other in (SUPERVISOR, *world.standing.names, *world.hosts):
        do(SYNCER, other)


# --- paths ------------------------------------------------------------------------------------


def _ends(injection: Injection) -> Iterator[tuple[str, str]]:
    """Yield source and target of each path of the victims, in the direction that suffers."""
    for name in injection.victims:
        for peer in injection.peers:
            yield (peer, name) if injection.fault.way is Direction.DOWN else (name, peer)


def _cut(injection: Injection, _usual: Route) -> Effects:
    one_way = injection.fault.way is not Direction.BOTH
    for source, target in _ends(injection):
        begin = partial(cut, source=source, target=target, one_way=one_way)
        yield from _lasting(injection, begin, partial(heal, source=source, target=target))


def cut(world: World, source: str, target: str, *, one_way: bool, noted: bool = True) -> None:
    """Let no message pass; those that are held arrive late."""
    world.network.cut(source, target, one_way=one_way)
    if noted:
        world.note(Fault("one-way cut" if one_way else "cut", [source, target]))


def heal(world: World, source: str, target: str) -> None:
    world.network.heal(source, target)


def _isolate(injection: Injection, _usual: Route) -> Effects:
    """Cut a learner from supervisor and syncer: it goes on stepping, and is evicted."""
    (name,) = injection.victims

    def isolate(world: World) -> None:
        for other in (SUPERVISOR, SYNCER):
            world.network.cut(name, other)
        world.note(Fault("isolate", [name]))

    def rejoin(world: World) -> None:
        for other in (SUPERVISOR, SYNCER):
            world.network.heal(name, other)

    return _lasting(injection, isolate, rejoin)


def _flap(injection: Injection, _usual: Route) -> Effects:
    one_way, turn_s = injection.fault.way is not Direction.BOTH, injection.fault.turn_s
    for source, target in _ends(injection):
        begin = partial(cut, source=source, target=target, one_way=one_way, noted=False)
        end = partial(heal, source=source, target=target)
        yield injection.at_s, partial(World.note, entry=Fault("flapping", [source, target]))
        for number in range(ceil(injection.fault.for_s / (2 * turn_s))):
            begin_s = injection.at_s + 2 * turn_s * number
            yield begin_s, begin
            yield begin_s + turn_s, end


def _reset(injection: Injection, _usual: Route) -> Effects:
    """Break all sessions between two hosts, in the middle of a message."""

    def reset(world: World, source: str, target: str) -> None:
        if world.network.reset(source, target):
            world.note(Fault("reset", [source, target]))

    for name in injection.victims:
        for peer in injection.peers:
            yield injection.at_s, partial(reset, source=name, target=peer)


def _spoil_paths(injection: Injection, usual: Route) -> Effects:
    def set_route(world: World, source: str, target: str, route: Route) -> None:
        world.network.set_route(source, target, route)

    bad, way = _route_of(injection), injection.fault.way
    for name in injection.victims:
        for peer in injection.peers:
            up = [(name, peer)] if way is not Direction.DOWN else []
            down = [(peer, name)] if way is not Direction.UP else []
            for source, target in (*up, *down):
                spoil = partial(set_route, source=source, target=target)
                yield injection.at_s, partial(World.note, entry=Fault("bad path", [source, target]))
                yield from _lasting(
                    injection, partial(spoil, route=bad), partial(spoil, route=usual)
                )


def _route_of(injection: Injection) -> Route:
    assert injection.route is not None, (
        "an injection of paths or of the weather says how they behave"
    )
    return injection.route


def _change_weather(injection: Injection, usual: Route) -> Effects:
    def set_weather(world: World, route: Route) -> None:
        if route != world.costs.route:
            world.note(Fault("weather", []))
        world.network.route = route

    begin = partial(set_weather, route=_route_of(injection))
    return _lasting(injection, begin, partial(set_weather, route=usual))


# --- disks ------------------------------------------------------------------------------------


def _spoil_disk(injection: Injection, _usual: Route) -> Effects:
    (name,), kind = injection.victims, injection.disk

    def spoil(world: World) -> None:
        slowness = DISK_SLOWNESS if kind == words.SLOW_DISK else 1.0
        full, failing = kind == words.FULL, kind == words.FAILING
        world.disks[name].spoil(full=full, failing=failing, slowness=slowness)
        world.note(Fault(kind, [name]))

    return _lasting(injection, spoil, partial(mend_disk, name=name))


def mend_disk(world: World, name: str) -> None:
    disk = world.disks[name]
    if disk.full or disk.failing:
        world.note(Fault(words.DISK_MENDED, [name]))
    disk.spoil()


def _flip_on_disk(injection: Injection, _usual: Route) -> Effects:
    """Kill a process, and flip a bit on its disk.

    The bit is in the older slot of a pair, so nothing that was committed may be lost.
    """
    (name,) = injection.victims

    async def flip(world: World) -> None:
        died = await world.kill(name)
        file = None if world.disks[name].failing else world.disks[name].flip()
        if died:
            world.note(Fault("kill", [name]))
        if file is not None:
            world.note(Fault("flipped bit", [name, file]))

    return _lasting(injection, flip, partial(World.restart, name=name))


# --- values and commands ----------------------------------------------------------------------


def _poison(injection: Injection, _usual: Route) -> Effects:
    def poison(world: World) -> None:
        if world.poison(injection.victims[0]):
            world.note(Fault("poison", [injection.victims[0]]))

    yield injection.at_s, poison


def _inflate(injection: Injection, _usual: Route) -> Effects:
    """Let a learner's weights grow by a large factor, as by a broken device."""

    def inflate(world: World) -> None:
        if world.inflate(injection.victims[0], injection.fault.factor):
            world.note(Fault("inflate", [injection.victims[0]]))

    yield injection.at_s, inflate


def _pause(injection: Injection, _usual: Route) -> Effects:
    return _lasting(
        injection, partial(command, verb=Verb.PAUSE), partial(command, verb=Verb.RESUME)
    )


def _drain(injection: Injection, _usual: Route) -> Effects:
    (name,) = injection.victims
    begin = partial(command, verb=Verb.DRAIN, target=name)
    return _lasting(injection, begin, partial(World.restart, name=name))


async def command(world: World, verb: Verb, target: str = "") -> None:
    answer = await world.command(verb, target)
    if answer is not None and answer.done and verb is not Verb.RESUME:
        world.note(Fault(verb.value, [target] if target else []))


SIMULATED: Mapping[FaultKind, Callable[[Injection, Route], Effects]] = {
    FaultKind.KILL: _kill,
    FaultKind.FREEZE: _freeze,
    FaultKind.TERMINATE: _leave,
    FaultKind.STRAGGLE: _slow,
    FaultKind.SECOND_SYNCER: _start_second_syncer,
    FaultKind.TAKE_OVER: _take_over,
    FaultKind.CUT: _cut,
    FaultKind.ISOLATE: _isolate,
    FaultKind.FLAP: _flap,
    FaultKind.RESET: _reset,
    FaultKind.PATH: _spoil_paths,
    FaultKind.WEATHER: _change_weather,
    FaultKind.DISK: _spoil_disk,
    FaultKind.FLIP_ON_DISK: _flip_on_disk,
    FaultKind.POISON: _poison,
    FaultKind.INFLATE: _inflate,
    FaultKind.PAUSE: _pause,
    FaultKind.DRAIN: _drain,
}
"""The effects of each kind of fault, on a network that is as the given route without faults."""
