"""The end of a simulated run that something has happened to."""

import asyncio

from islands.lab.world.world import World


async def finished(world: World) -> None:
    """The run goes on to its end, and nobody failed."""
    for _ in range(1200):
        await asyncio.sleep(0.1)
        if world.finished is not None:
            break
    assert world.finished == "tokens"
    await asyncio.sleep(5.0)
    assert not world.failures
    await world.kill_all()
