"""What the faults of `host_faults.py` do to a world, and when.

Each deed records its fault on the tape, if it had an effect.
"""

from collections.abc import Awaitable, Callable
from typing import assert_never

from islands.lab.world.host_faults import (
    DISK_SLOWNESS,
    BadDisk,
    BadPath,
    Flap,
    Flip,
    Freeze,
    HostFault,
    Inflate,
    Reset,
    SecondSyncer,
)
from islands.lab.world.world import SPARE_SYNCER, World
from islands.protocol.identities import SYNCER
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

Deed = Callable[[World], Awaitable[None]]


def host_deeds(fault: HostFault, usual: Route) -> list[tuple[float, Deed]]:
    """Return what a fault does, with the times; `usual` is the route without faults."""
    match fault:
        case Freeze(at_s, names, for_s):
            return [(at_s, _freeze(names)), (at_s + for_s, _thaw(names))]
        case BadDisk(at_s, name, kind, for_s):
            return [(at_s, _spoil(name, kind)), (at_s + for_s, _mend_disk(name))]
        case Flip(at_s, name, down_s):
            return [(at_s, _flip(name)), (at_s + down_s, start(name))]
        case Reset(at_s, source, target):
            return [(at_s, _reset(source, target))]
        case Flap(at_s, source, target, cut_s, times):
            deeds: list[tuple[float, Deed]] = []
            for number in range(times):
                begin_s = at_s + 2 * cut_s * number
                deeds += [(begin_s, _cut(source, target)), (begin_s + cut_s, heal(source, target))]
            return [(at_s, _noted("flapping", [source, target])), *deeds]
        case BadPath(at_s, source, target, route, for_s):
            told = (at_s, _noted("bad path", [source, target]))
            set_ = (at_s, _route(source, target, route))
            return [told, set_, (at_s + for_s, _route(source, target, usual))]
        case SecondSyncer(at_s, frozen_s):
            first = host_deeds(Freeze(at_s, (SYNCER,), frozen_s), usual) if frozen_s else []
            return [*first, (at_s, _second_syncer)]
        case Inflate(at_s, name, factor):
            return [(at_s, _inflate(name, factor))]
        case _:
            assert_never(fault)


def mend_hosts(world: World) -> None:
    """Mend all disks and paths, and let all processes go on."""
    for name in world.disks:
        _mend(world, name)
    world.network.clear_routes()
    thaw(world, world.processes.frozen)


def thaw(world: World, names: tuple[str, ...]) -> None:
    """Let those of these processes go on that are stopped."""
    going = [name for name in names if world.processes.thaw(name)]
    if going:
        world.note(Fault(THAW, going))


def _noted(kind: str, names: list[str]) -> Deed:
    async def deed(world: World) -> None:
        world.note(Fault(kind, names))

    return deed


def _freeze(names: tuple[str, ...]) -> Deed:
    async def deed(world: World) -> None:
        stopped = [name for name in names if world.processes.freeze(name)]
        if stopped:
            world.note(Fault(FREEZE, stopped))

    return deed


def _thaw(names: tuple[str, ...]) -> Deed:
    async def deed(world: World) -> None:
        thaw(world, names)

    return deed


def _spoil(name: str, kind: str) -> Deed:
    async def deed(world: World) -> None:
        slowness = 1.0 if kind in (FULL, FAILING) else DISK_SLOWNESS
        world.disks[name].spoil(full=kind == FULL, failing=kind == FAILING, slowness=slowness)
        world.note(Fault(kind, [name]))

    return deed


def _mend_disk(name: str) -> Deed:
    async def deed(world: World) -> None:
        _mend(world, name)

    return deed


def _mend(world: World, name: str) -> None:
    disk = world.disks[name]
    if disk.full or disk.failing:
        world.note(Fault(DISK_MENDED, [name]))
    disk.mend()


def _flip(name: str) -> Deed:
    async def deed(world: World) -> None:
        died = await world.kill(name)
        file = None if world.disks[name].failing else world.disks[name].flip()
        if died:
            world.note(Fault("kill", [name]))
        if file is not None:
            world.note(Fault("flipped bit", [name, file]))

    return deed


def start(name: str) -> Deed:
    """Return the deed that starts a process, unless the run is over."""

    async def deed(world: World) -> None:
        if world.finished is None:
            world.start(name)

    return deed


def _reset(source: str, target: str) -> Deed:
    async def deed(world: World) -> None:
        if world.network.reset(source, target):
            world.note(Fault("reset", [source, target]))

    return deed


def _cut(source: str, target: str) -> Deed:
    async def deed(world: World) -> None:
        world.network.cut(source, target)

    return deed


def heal(source: str, target: str) -> Deed:
    """Return the deed that ends a cut."""

    async def deed(world: World) -> None:
        world.network.heal(source, target)

    return deed


def _route(source: str, target: str, route: Route) -> Deed:
    async def deed(world: World) -> None:
        world.network.set_route(source, target, route)

    return deed


async def _second_syncer(world: World) -> None:
    if world.finished is None and SPARE_SYNCER not in world.processes:
        world.start_second_syncer()
        world.note(Fault(SECOND_SYNCER, [SPARE_SYNCER]))


def _inflate(name: str, factor: float) -> Deed:
    async def deed(world: World) -> None:
        if world.inflate(name, factor):
            world.note(Fault("inflate", [name]))

    return deed
