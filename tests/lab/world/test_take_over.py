"""A syncer goes on from the second copy of a journal, and the old one returns with its own disk."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from islands.lab.checker import judge
from islands.lab.faults.fault import Fault, FaultKind, Injection
from islands.lab.world.fault_effects import SIMULATED
from islands.lab.world.second_copy import SecondCopy
from islands.lab.world.world import SPARE_SYNCER, World
from islands.protocol.errors import OutdatedError
from islands.protocol.identities import SYNCER
from islands.syncer.journal import Journal
from messaging.simulation.network import Route
from tests.lab.world.test_operator import HOSTS, SETTINGS
from tests.lab.world.worlds import entries, finished, lines, lived, promises_kept

pytestmark = pytest.mark.simulation
AWAY_S = 2.0


async def taken_over(world: World, *, lost: bool, returns: int = 1) -> None:
    """Lose the syncer, or cut it off, and let it return so many times while another has gone on."""
    fault = Fault(FaultKind.TAKE_OVER, for_s=AWAY_S)
    injection = Injection(fault, (), 0.0, silent=lost, down_s=(9.0, 9.0))
    (_, take_over), (_, come_back), *_ = SIMULATED[FaultKind.TAKE_OVER](injection, Route())
    await done(take_over(world))
    for _ in range(returns):
        await asyncio.sleep(AWAY_S)
        await done(come_back(world))
        await asyncio.sleep(1.0)
        if returns > 1:
            await world.kill(SYNCER)
    world.failures = [each for each in world.failures if not isinstance(each[1], OutdatedError)]


async def done(effect: Awaitable[None] | None) -> None:
    if effect is not None:
        await effect


async def mirrored(world: World, by: type[SecondCopy]) -> None:
    world.keep_copy(by)
    await world.kill(SYNCER)
    world.start(SYNCER)


def played(course: Callable[[World], Awaitable[None]], by: type[SecondCopy] = SecondCopy) -> World:
    return lived(SETTINGS, HOSTS, partial(mirrored, by=by), 3.0, course, finished, seed=3)


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "cut off"])
@pytest.mark.parametrize("returns", [1, 4])
def test_an_old_syncer_that_returns_changes_nothing(lost: bool, returns: int) -> None:  # noqa: FBT001
    world = played(partial(taken_over, lost=lost, returns=returns))
    promises_kept(world)
    started = entries(world, "started", SPARE_SYNCER)
    assert len(started) == 1
    before = [entry for entry in entries(world, "merged") if entry["actor"] == SYNCER]
    after = [entry for entry in entries(world, "merged") if entry["actor"] == SPARE_SYNCER]
    assert before
    assert len(after) > 10
    assert max(entry["at_s"] for entry in before) < started[0]["at_s"]
    assert all(row["pending"] == 0 for row in ledger_of(world))


def ledger_of(world: World) -> list[dict[str, int]]:
    (last,) = entries(world, "finished", SPARE_SYNCER)
    rows: list[dict[str, int]] = last["ledger"]
    return rows


class Late(SecondCopy):
    """A copy that stays as it was after two seconds."""

    def follow(self, journal: Journal) -> None:
        if asyncio.get_running_loop().time() < 2.0:
            super().follow(journal)


def test_a_copy_that_lacks_what_was_acknowledged_is_found() -> None:
    world = played(partial(taken_over, lost=True), Late)
    said = [each.sentence for each in judge(lines(world), world.limits())]
    assert any("was durable, epoch" in sentence for sentence in said)
