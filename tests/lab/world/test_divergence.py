"""A run that cannot be trained, among the real actors."""

import asyncio

import pytest

from islands.files.tape_writing import MemoryTape
from islands.lab.world.world import LearnerHost, World
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.watches import DIVERGED
from messaging.simulation.virtual_time import run_virtual

pytestmark = pytest.mark.simulation

LIMIT_S = 60.0


@pytest.mark.parametrize("names", [("ana",), ("ana", "ben", "eve")])
def test_a_rate_far_too_high_ends_the_run_with_a_sentence(names: tuple[str, ...]) -> None:
    """It used to go on for ever: moments reset, admitted again, and no word about it."""
    tape = MemoryTape()
    settings = RunSettings(interval_steps=4, fragments=2, learning_rate=50.0, warmup_steps=0)

    async def live() -> None:
        world = World(settings, {name: LearnerHost() for name in names}, seed=1, tape=tape)
        world.start_all()
        await asyncio.sleep(LIMIT_S)
        await world.kill_all()
        assert world.failures == []
        assert (world.finished or "").startswith(DIVERGED)

    run_virtual(live(), limit_s=2 * LIMIT_S)
    text = b"\n".join(tape.lines)
    assert b'"kind":"evicted"' not in text
