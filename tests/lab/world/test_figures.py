"""What learners tell of their steps, for people, agrees with the ledger."""

import asyncio

import pytest

from islands.files.tape_writing import MemoryTape
from islands.lab.world.world import LearnerHost, World
from islands.protocol.identities import SYNCER
from islands.protocol.messages.control import StepFigures
from islands.protocol.settings.choices import Adoption
from islands.protocol.settings.run import RunSettings
from messaging.simulation.virtual_time import run_virtual
from tests.lab.world.worlds import entries

HOSTS = {"ana": LearnerHost(), "ben": LearnerHost(step_s=0.03), "cleo": LearnerHost(step_s=0.4)}


@pytest.mark.parametrize("budget", [500, 3000, 3007])
def test_at_the_end_their_sum_is_what_the_ledger_processed(budget: int) -> None:
    told: dict[str, StepFigures] = {}
    settings = RunSettings(interval_steps=8, fragments=4, budget_tokens=budget)
    world = World(settings, HOSTS, seed=2, tape=MemoryTape(), figures=told.__setitem__)

    run_virtual(_to_its_end(world), limit_s=300.0)
    assert sum(figures.tokens for figures in told.values()) == _finished(world)[0]["processed"]
    assert sum(figures.steps for figures in told.values()) > 0


def test_what_is_carried_on_is_not_thrown_away() -> None:
    overwritten, applied = {}, {}
    for adoption in Adoption:
        settings = RunSettings(interval_steps=8, fragments=4, budget_tokens=4000, adoption=adoption)
        world = World(settings, HOSTS, seed=2, tape=MemoryTape())
        run_virtual(_to_its_end(world), limit_s=300.0)
        (row, *_) = _finished(world)
        overwritten[adoption], applied[adoption] = row["overwritten"], row["applied"]
        assert row["processed"] == row["applied"] + row["overwritten"] + row["late"]
    assert overwritten[Adoption.OVERWRITE] > 100
    assert overwritten[Adoption.DELAY_CORRECTED] == 0
    assert applied[Adoption.DELAY_CORRECTED] == 4000


def _finished(world: World) -> list[dict[str, int]]:
    (last,) = entries(world, "finished", SYNCER)
    rows: list[dict[str, int]] = last["ledger"]
    return rows


async def _to_its_end(world: World) -> None:
    world.start_all()
    for _ in range(2000):
        await asyncio.sleep(0.1)
        if world.finished is not None:
            break
    await world.kill_all()
