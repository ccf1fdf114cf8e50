"""What learners tell of their steps, for people, agrees with the ledger."""

import asyncio
import json

import pytest

from islands.config import RunSettings
from islands.operation import StepFigures
from islands.simulation.world import SYNCER, LearnerHost, World
from islands.tape import MemoryTape
from messaging.virtual_time import run_virtual

HOSTS = {"ana": LearnerHost(), "ben": LearnerHost(step_s=0.03), "cleo": LearnerHost(step_s=0.4)}


@pytest.mark.parametrize("budget", [500, 3000, 3007])
def test_at_the_end_their_sum_is_what_the_ledger_processed(budget: int) -> None:
    """The last heartbeat of a learner may be long before its last step: that is told as well."""
    told: dict[str, StepFigures] = {}
    settings = RunSettings(interval_steps=8, fragments=4, budget_tokens=budget)
    tape = MemoryTape()
    world = World(settings, HOSTS, seed=2, tape=tape, figures=told.__setitem__)

    async def live() -> None:
        world.start_all()
        for _ in range(2000):
            await asyncio.sleep(0.1)
            if world.finished is not None:
                break
        await world.kill_all()

    run_virtual(live(), limit_s=300.0)
    entries = [json.loads(line) for line in tape.lines]
    (last,) = [one for one in entries if one["kind"] == "finished" and one["actor"] == SYNCER]
    assert sum(figures.tokens for figures in told.values()) == last["ledger"][0]["processed"]
    assert sum(figures.steps for figures in told.values()) > 0
