"""What tests of simulated worlds share: waiting, the tape and its promises."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from islands.files.tape_writing import MemoryTape
from islands.lab.checker import judge
from islands.lab.world.world import LearnerHost, World
from islands.protocol.identities import SYNCER
from islands.protocol.settings.run import RunSettings
from messaging.simulation.virtual_time import run_virtual

Entries = list[dict[str, Any]]

LONG_S = 100_000.0


def lived(
    settings: RunSettings,
    hosts: Mapping[str, LearnerHost],
    *course: float | Callable[[World], Awaitable[None]],
    seed: int = 1,
    **options: Any,  # noqa: ANN401 (those of `World`)
) -> World:
    """A world in which seconds pass, and something is done, in this order."""
    world = World(settings, dict(hosts), seed=seed, tape=MemoryTape(), **options)

    async def live() -> None:
        world.start_all()
        for part in course:
            await (asyncio.sleep(part) if isinstance(part, float) else part(world))
        await world.kill_all()

    run_virtual(live(), limit_s=LONG_S)
    return world


async def until(true: Callable[[], bool], *, limit_s: float = 300.0) -> None:
    """Wait until something holds."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + limit_s
    while not true():
        assert loop.time() < end_s, "it does not come to that"
        await asyncio.sleep(0.01)


async def ended(world: World) -> None:
    await until(lambda: world.finished is not None and not world.processes.names())
    assert not world.failures


async def finished(world: World) -> None:
    """The run goes on to the end of its budget, and nobody failed."""
    await until(lambda: world.finished is not None)
    assert world.finished == "tokens"
    await asyncio.sleep(5.0)
    assert not world.failures
    await world.kill_all()


def lines(world: World) -> tuple[bytes, ...]:
    assert isinstance(world.tape, MemoryTape)
    return tuple(world.tape.lines)


def entries(world: World, kind: str = "", actor: str = "") -> Entries:
    return [
        entry
        for line in lines(world)
        for entry in [json.loads(line)]
        if kind in ("", entry["kind"]) and actor in ("", entry["actor"])
    ]


def ledger(world: World) -> list[dict[str, int]]:
    """The rows of the syncer's ledger at the end of the run."""
    (last,) = entries(world, "finished", SYNCER)
    rows: list[dict[str, int]] = last["ledger"]
    return rows


def promises_kept(world: World) -> None:
    """The history checker finds nothing wrong, tokens and ledger included."""
    assert not judge(lines(world), world.limits())
