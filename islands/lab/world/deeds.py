"""Each kind of fault as it is done to a simulated world, and undone.

A strike becomes **deeds**, each with its time. A deed records its fault on the tape, if it had an
effect. What `SIMULATED` lacks has no equivalent on a virtual clock.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import ceil

from islands.lab.faults.fault import Direction, FaultKind, Strike
from islands.lab.world.world import SPARE_SYNCER, World
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.messages.control import Verb
from islands.protocol.tape.simulation_entries import (
    DISK_MENDED,
    FAILING,
    FREEZE,
    FULL,
    SECOND_SYNCER,
    THAW,
    Fault,
)
from messaging.simulation.network import Route

RESTART_S = 0.3
"""How long a killed process is away, as the supervisor's first restart takes about so long."""

WRITE_WAIT_S, WRITE_LOOK_S = 0.5, 0.0004
"""For how long a kill waits for a sync of the syncer's disk, and how often it looks."""

DISK_SLOWNESS = 20.0
"""How many times as long a write takes on a slow disk."""

Deed = Callable[[World], Awaitable[None] | None]
Deeds = Iterator[tuple[float, Deed]]


def deeds_of(strike: Strike, usual: Route) -> list[tuple[float, Deed]]:
    """Return what a strike does, with the times; nothing if it has no equivalent here.

    Args:
        strike: the occurrence of a fault.
        usual: behaviour of the network without faults.
    """
    make = SIMULATED.get(strike.kind)
    return [] if make is None else list(make(strike, usual))


# --- processes --------------------------------------------------------------------------------


def _killing(strike: Strike, _usual: Route) -> Deeds:
    wait_s = WRITE_WAIT_S if strike.in_write else 0.0
    yield strike.at_s, partial(kill, names=strike.victims, silent=strike.silent, wait_s=wait_s)
    for index, name in enumerate(strike.victims):
        away_s = strike.fault.for_s if name == SUPERVISOR else RESTART_S
        away_s = strike.down_s[index] if strike.down_s else away_s
        yield strike.at_s + wait_s + away_s, partial(start, name=name)


async def kill(world: World, names: tuple[str, ...], *, silent: bool, wait_s: float) -> None:
    """Kill processes, if possible in the middle of a sync of the syncer's disk."""
    for _ in range(round(wait_s / WRITE_LOOK_S)):
        if world.disks[SYNCER].syncing:
            break
        await asyncio.sleep(WRITE_LOOK_S)
    died = [name for name in names if await world.kill(name, silent=silent)]
    if died:
        world.note(Fault("crash" if silent else "kill", died))


def start(world: World, name: str) -> None:
    """Start a process, unless the run is over."""
    if world.finished is None:
        world.start(name)


def _leaving(strike: Strike, _usual: Route) -> Deeds:
    """Let a learner leave; of syncer and supervisor there is no such thing."""
    (name,) = strike.victims
    if name not in (SUPERVISOR, SYNCER):
        yield strike.at_s, partial(leave, name=name)
        yield strike.at_s + strike.fault.for_s, partial(start, name=name)


def leave(world: World, name: str) -> None:
    """Let a learner leave by itself."""
    learner = world.learner(name)
    if learner is not None:
        world.note(Fault("leave", [name]))
        learner.leave("asked to")


def _freezing(strike: Strike, _usual: Route) -> Deeds:
    yield strike.at_s, partial(freeze, names=strike.victims)
    yield strike.at_s + strike.fault.for_s, partial(thaw, names=strike.victims)


def freeze(world: World, names: tuple[str, ...]) -> None:
    """Let processes stand still; their links stay open, and their clocks go on."""
    stopped = [name for name in names if world.processes.freeze(name)]
    if stopped:
        world.note(Fault(FREEZE, stopped))


def thaw(world: World, names: tuple[str, ...]) -> None:
    """Let those of these processes go on that are stopped."""
    going = [name for name in names if world.processes.thaw(name)]
    if going:
        world.note(Fault(THAW, going))


def _slowing(strike: Strike, _usual: Route) -> Deeds:
    (name,) = strike.victims
    if name not in (SUPERVISOR, SYNCER):
        yield strike.at_s, partial(slow, name=name, factor=strike.fault.factor)
        yield strike.at_s + strike.fault.for_s, partial(slow, name=name, factor=1.0)


def slow(world: World, name: str, factor: float) -> None:
    """Let a learner's steps take a multiple of their time."""
    if factor > 1:
        world.note(Fault("slow", [name]))
    world.slow[name] = factor


def _starting_second_syncer(strike: Strike, usual: Route) -> Deeds:
    if strike.fault.for_s:
        yield from _freezing(replace(strike, victims=(SYNCER,)), usual)
    yield strike.at_s, start_second_syncer


def start_second_syncer(world: World) -> None:
    """Start a second syncer over the same journal, unless one runs."""
    if world.finished is None and SPARE_SYNCER not in world.processes:
        world.start_second_syncer()
        world.note(Fault(SECOND_SYNCER, [SPARE_SYNCER]))


# --- paths ------------------------------------------------------------------------------------


def _ends(strike: Strike) -> Iterator[tuple[str, str]]:
    """Yield source and target of each path of the victims, in the direction that suffers."""
    for name in strike.victims:
        for peer in strike.peers:
            yield (peer, name) if strike.fault.way is Direction.DOWN else (name, peer)


def _cutting(strike: Strike, _usual: Route) -> Deeds:
    one_way = strike.fault.way is not Direction.BOTH
    for source, target in _ends(strike):
        yield strike.at_s, partial(cut, source=source, target=target, one_way=one_way)
        yield strike.at_s + strike.fault.for_s, partial(heal, source=source, target=target)


def cut(world: World, source: str, target: str, *, one_way: bool, noted: bool = True) -> None:
    """Let no message pass; those that are held arrive late."""
    world.network.cut(source, target, one_way=one_way)
    if noted:
        world.note(Fault("one-way cut" if one_way else "cut", [source, target]))


def heal(world: World, source: str, target: str) -> None:
    world.network.heal(source, target)


def _isolating(strike: Strike, _usual: Route) -> Deeds:
    (name,) = strike.victims
    yield strike.at_s, partial(isolate, name=name)
    yield strike.at_s + strike.fault.for_s, partial(rejoin, name=name)


def isolate(world: World, name: str) -> None:
    """Cut a learner from supervisor and syncer: it goes on stepping, and is evicted."""
    for other in (SUPERVISOR, SYNCER):
        world.network.cut(name, other)
    world.note(Fault("isolate", [name]))


def rejoin(world: World, name: str) -> None:
    for other in (SUPERVISOR, SYNCER):
        world.network.heal(name, other)


def _flapping(strike: Strike, _usual: Route) -> Deeds:
    one_way, turn_s = strike.fault.way is not Direction.BOTH, strike.fault.turn_s
    for source, target in _ends(strike):
        yield strike.at_s, partial(note, kind="flapping", names=[source, target])
        for number in range(ceil(strike.fault.for_s / (2 * turn_s))):
            begin_s = strike.at_s + 2 * turn_s * number
            yield (
                begin_s,
                partial(cut, source=source, target=target, one_way=one_way, noted=False),
            )
            yield begin_s + turn_s, partial(heal, source=source, target=target)


def note(world: World, kind: str, names: list[str]) -> None:
    """Record a fault that lasts."""
    world.note(Fault(kind, names))


def _resetting(strike: Strike, _usual: Route) -> Deeds:
    for name in strike.victims:
        for peer in strike.peers:
            yield strike.at_s, partial(reset, source=name, target=peer)


def reset(world: World, source: str, target: str) -> None:
    """Break all sessions between two hosts, in the middle of a message."""
    if world.network.reset(source, target):
        world.note(Fault("reset", [source, target]))


def _spoiling_paths(strike: Strike, usual: Route) -> Deeds:
    """Let each way that suffers behave otherwise for a while."""
    bad, way = _route_of(strike), strike.fault.way
    for name in strike.victims:
        for peer in strike.peers:
            up = [(name, peer)] if way is not Direction.DOWN else []
            down = [(peer, name)] if way is not Direction.UP else []
            for source, target in (*up, *down):
                spoil = partial(set_route, source=source, target=target)
                yield strike.at_s, partial(note, kind="bad path", names=[source, target])
                yield strike.at_s, partial(spoil, route=bad)
                yield strike.at_s + strike.fault.for_s, partial(spoil, route=usual)


def _route_of(strike: Strike) -> Route:
    assert strike.route is not None, "a strike of paths or of the weather says how they behave"
    return strike.route


def set_route(world: World, source: str, target: str, route: Route) -> None:
    """Let the path from one host to another behave like this from now on."""
    world.network.set_route(source, target, route)


def _changing_weather(strike: Strike, usual: Route) -> Deeds:
    yield strike.at_s, partial(set_weather, route=_route_of(strike))
    yield strike.at_s + strike.fault.for_s, partial(set_weather, route=usual)


def set_weather(world: World, route: Route) -> None:
    """Let the whole network behave like this from now on."""
    if route != world.costs.route:
        world.note(Fault("weather", []))
    world.network.route = route


# --- disks ------------------------------------------------------------------------------------


def _spoiling_disk(strike: Strike, _usual: Route) -> Deeds:
    (name,) = strike.victims
    yield strike.at_s, partial(spoil_disk, name=name, kind=strike.disk)
    yield strike.at_s + strike.fault.for_s, partial(mend_disk, name=name)


def spoil_disk(world: World, name: str, kind: str) -> None:
    """Let a disk be full, fail or be slow."""
    slowness = 1.0 if kind in (FULL, FAILING) else DISK_SLOWNESS
    world.disks[name].spoil(full=kind == FULL, failing=kind == FAILING, slowness=slowness)
    world.note(Fault(kind, [name]))


def mend_disk(world: World, name: str) -> None:
    """Give a disk space and a sound device again."""
    disk = world.disks[name]
    if disk.full or disk.failing:
        world.note(Fault(DISK_MENDED, [name]))
    disk.mend()


def _flipping_on_disk(strike: Strike, _usual: Route) -> Deeds:
    (name,) = strike.victims
    yield strike.at_s, partial(flip_on_disk, name=name)
    yield strike.at_s + strike.fault.for_s, partial(start, name=name)


async def flip_on_disk(world: World, name: str) -> None:
    """Kill a process, and flip a bit on its disk.

    The bit is in the older slot of a pair, so nothing that was committed may be lost.
    """
    died = await world.kill(name)
    file = None if world.disks[name].failing else world.disks[name].flip()
    if died:
        world.note(Fault("kill", [name]))
    if file is not None:
        world.note(Fault("flipped bit", [name, file]))


# --- values and orders ------------------------------------------------------------------------


def _poisoning(strike: Strike, _usual: Route) -> Deeds:
    yield strike.at_s, partial(poison, name=strike.victims[0])


def poison(world: World, name: str) -> None:
    """Let a learner's weights become NaN."""
    if world.poison(name):
        world.note(Fault("poison", [name]))


def _inflating(strike: Strike, _usual: Route) -> Deeds:
    yield strike.at_s, partial(inflate, name=strike.victims[0], factor=strike.fault.factor)


def inflate(world: World, name: str, factor: float) -> None:
    """Let a learner's weights grow by a large factor, as by a broken device."""
    if world.inflate(name, factor):
        world.note(Fault("inflate", [name]))


def _pausing(strike: Strike, _usual: Route) -> Deeds:
    yield strike.at_s, partial(command, verb=Verb.PAUSE)
    yield strike.at_s + strike.fault.for_s, partial(command, verb=Verb.RESUME)


def _draining(strike: Strike, _usual: Route) -> Deeds:
    (name,) = strike.victims
    yield strike.at_s, partial(command, verb=Verb.DRAIN, target=name)
    yield strike.at_s + strike.fault.for_s, partial(start, name=name)


async def command(world: World, verb: Verb, target: str = "") -> None:
    answer = await world.command(verb, target)
    if answer is not None and answer.done and verb is not Verb.RESUME:
        world.note(Fault(verb.value, [target] if target else []))


SIMULATED: Mapping[FaultKind, Callable[[Strike, Route], Deeds]] = {
    FaultKind.KILL: _killing,
    FaultKind.FREEZE: _freezing,
    FaultKind.TERMINATE: _leaving,
    FaultKind.STRAGGLE: _slowing,
    FaultKind.SECOND_SYNCER: _starting_second_syncer,
    FaultKind.CUT: _cutting,
    FaultKind.ISOLATE: _isolating,
    FaultKind.FLAP: _flapping,
    FaultKind.RESET: _resetting,
    FaultKind.PATH: _spoiling_paths,
    FaultKind.WEATHER: _changing_weather,
    FaultKind.DISK: _spoiling_disk,
    FaultKind.FLIP_ON_DISK: _flipping_on_disk,
    FaultKind.POISON: _poisoning,
    FaultKind.INFLATE: _inflating,
    FaultKind.PAUSE: _pausing,
    FaultKind.DRAIN: _draining,
}
"""The deeds of each kind of fault."""
