"""A journal that was restored from an older copy, while the learners lived on."""

import asyncio
import json

from islands.files.tape_writing import MemoryTape
from islands.lab.world.world import LearnerHost, World
from islands.protocol.errors import OutdatedError
from islands.protocol.identities import SYNCER
from islands.protocol.settings.run import RunSettings
from messaging.simulation.virtual_time import run_virtual
from tests.lab.world.run_end import finished

HOSTS = {"ana": LearnerHost(), "ben": LearnerHost(step_s=0.07), "cleo": LearnerHost(step_s=0.2)}
SETTINGS = RunSettings(interval_steps=8, fragments=4, budget_tokens=6000, seed=1)


def entries(world: World, kind: str) -> list[dict[str, object]]:
    """What the syncer put on the tape of this kind."""
    assert isinstance(world.tape, MemoryTape)
    told = [json.loads(line) for line in world.tape.lines]
    return [one for one in told if one["kind"] == kind and one["actor"] == SYNCER]


async def fenced(world: World) -> None:
    """The syncer ends because learners follow another start of it."""
    await asyncio.sleep(2.0)
    ((name, error),) = world.failures
    assert (name, type(error)) == (SYNCER, OutdatedError)
    world.failures.clear()


def test_the_run_goes_on_and_the_ledger_balances() -> None:
    """Copied after 6 seconds, restored after 14: each learner comes back as another, once.

    The budget is processed as the restored books count it, to the token; what was done in between
    is on the tape.
    """
    world = World(SETTINGS, HOSTS, seed=5, tape=MemoryTape())

    async def live() -> None:
        world.start_all()
        await asyncio.sleep(6.0)
        copy = world.disks[SYNCER].copied()
        await asyncio.sleep(8.0)
        await world.kill(SYNCER)
        world.disks[SYNCER].restore(copy)
        world.start(SYNCER)
        await finished(world)

    run_virtual(live(), limit_s=300.0)
    assert sorted(str(one["name"]) for one in entries(world, "wrong_report")) == sorted(HOSTS)
    assert all(int(str(one["untold_tokens"])) > 0 for one in entries(world, "wrong_report"))
    (last,) = entries(world, "finished")
    ledger = last["ledger"]
    assert isinstance(ledger, list)
    for row in ledger:
        fates = ("applied", "rejected", "late", "stale", "overwritten", "lost", "pending")
        assert row["processed"] == sum(row[fate] for fate in fates)
        assert SETTINGS.budget_tokens - 8 < row["processed"] <= SETTINGS.budget_tokens  # type: ignore[operator]
        assert row["applied"] > SETTINGS.budget_tokens / 4  # type: ignore[operator]


def test_a_copy_from_before_another_start_ends_once_and_then_goes_on() -> None:
    """Learners prove a start that the copy does not know: its epochs would be given twice.

    So the syncer ends, fenced, and the start after it takes a higher epoch.
    """
    world = World(SETTINGS, HOSTS, seed=5, tape=MemoryTape())

    async def live() -> None:
        world.start_all()
        await asyncio.sleep(4.0)
        copy = world.disks[SYNCER].copied()
        for _ in range(2):
            await world.kill(SYNCER)
            world.start(SYNCER)
            await asyncio.sleep(4.0)
        await world.kill(SYNCER)
        world.disks[SYNCER].restore(copy)
        world.start(SYNCER)
        await fenced(world)
        world.start(SYNCER)
        await finished(world)

    run_virtual(live(), limit_s=300.0)
    assert [one["epoch"] for one in entries(world, "started")] == [1, 2, 3, 2, 4]


def test_without_any_journal_the_run_begins_anew_with_what_learners_hold() -> None:
    """A first start takes an epoch that was given before, and ends; the next asks for version 0."""
    world = World(SETTINGS, HOSTS, seed=5, tape=MemoryTape())

    async def live() -> None:
        world.start_all()
        await asyncio.sleep(6.0)
        await world.kill(SYNCER)
        world.disks[SYNCER].restore({})
        world.start(SYNCER)
        await fenced(world)
        world.start(SYNCER)
        await finished(world)

    run_virtual(live(), limit_s=300.0)
    assert [str(one["version"]) for one in entries(world, "seeded")] == ["1.0", "3.0"]
