"""A standby goes on as the syncer in simulated worlds, and the old one returns with its own disk.

Each mistake on purpose breaks one rule of the production code, and the checker finds it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from islands.keeping.standby import StandbyActor
from islands.keeping.standby_state import Action, Event, Store, Stored
from islands.keeping.standbys import Standbys
from islands.lab.checker import judge
from islands.lab.faults.fault import Fault, FaultKind, Injection
from islands.lab.world.fault_effects import SIMULATED, kill
from islands.lab.world.standbys import Standing, Wanted
from islands.lab.world.world import World
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.supervisor import membership
from messaging.simulation.network import Route
from tests.lab.world.test_operator import HOSTS, SETTINGS
from tests.lab.world.worlds import entries, finished, lines, lived, promises_kept, until

pytestmark = pytest.mark.simulation
AWAY_S = 4.0
FIRST, SECOND = "standby-0", "standby-1"


async def taken_over(world: World, *, lost: bool, returns: int = 1) -> None:
    """Lose the syncer, or cut it off, and let it return so many times while another goes on."""
    fault = Fault(FaultKind.TAKE_OVER, for_s=AWAY_S)
    injection = Injection(fault, (), 0.0, silent=lost, down_s=(9.0, 9.0))
    (_, lose), (_, come_back), *_ = SIMULATED[FaultKind.TAKE_OVER](injection, Route())
    await done(lose(world))
    for _ in range(returns):
        await asyncio.sleep(AWAY_S)
        await done(come_back(world))
        await asyncio.sleep(1.0)
        if returns > 1:
            await world.kill(SYNCER)


async def done(effect: Awaitable[None] | None) -> None:
    if effect is not None:
        await effect


def played(
    *course: float | Callable[[World], Awaitable[None]],
    wanted: Wanted = Wanted(1, 0.5),  # noqa: B008
    standing: type[Standing] = Standing,
) -> World:
    """Let a run whose syncer has standbys go on for a while, then something be done to it."""

    async def begin(world: World) -> None:
        await world.kill_all()
        world.stand_by(wanted)
        world.standing = standing(wanted)
        world.start_all()

    return lived(SETTINGS, HOSTS, begin, 3.0, *course, finished, seed=3)


def said(world: World) -> str:
    return "; ".join(each.sentence for each in judge(lines(world), world.limits()))


def merged_by(world: World, name: str) -> list[float]:
    return [entry["at_s"] for entry in entries(world, "merged", name)]


@pytest.mark.parametrize("after_s", [0.5, None], ids=["by itself", "by hand"])
@pytest.mark.parametrize("lost", [True, False], ids=["lost", "cut off"])
@pytest.mark.parametrize("returns", [1, 3])
def test_an_old_syncer_that_returns_changes_nothing(
    lost: bool,  # noqa: FBT001
    returns: int,
    after_s: float | None,
) -> None:
    course = partial(taken_over, lost=lost, returns=returns)
    world = played(course, wanted=Wanted(1, after_s))
    promises_kept(world)
    assert [entry["name"] for entry in entries(world, "promoted")] == [FIRST]
    assert max(merged_by(world, SYNCER)) < entries(world, "promoted")[0]["at_s"]
    assert len(merged_by(world, FIRST)) > 10
    (last,) = entries(world, "finished", FIRST)
    assert all(row["pending"] == 0 for row in last["ledger"])
    refused = [entry for entry in entries(world, "refused") if entry["name"] == SYNCER]
    assert "goes on with the syncer 'standby-0'" in refused[-1]["reason"]


def test_of_two_standbys_each_takes_over_in_its_turn() -> None:
    async def lose_both(world: World) -> None:
        await taken_over(world, lost=True)
        await asyncio.sleep(3.0)
        await kill(world, (world.standing.owner,), silent=True, wait_s=0.0)
        await asyncio.sleep(AWAY_S)
        world.restart(world.standing.promoted[0])

    world = played(lose_both, wanted=Wanted(2, 0.5))
    promises_kept(world)
    first, second = entries(world, "promoted")
    assert (first["takes_over"], second["takes_over"]) == (SYNCER, first["name"])
    assert {first["name"], second["name"]} == {FIRST, SECOND}
    assert merged_by(world, second["name"])


async def cut_first(world: World) -> None:
    """Cut the first standby from the syncer, which goes on with the second one."""
    world.network.cut(SYNCER, FIRST)
    await asyncio.sleep(3.0)


async def return_at_last(world: World) -> None:
    world.network.heal(SYNCER, FIRST)


def test_the_standby_with_the_newest_copy_takes_over() -> None:
    world = played(cut_first, partial(taken_over, lost=True), wanted=Wanted(2, 0.5))
    promises_kept(world)
    assert [entry["name"] for entry in entries(world, "promoted")] == [SECOND]
    reasons = {entry["reason"] for entry in entries(world, "refused") if entry["name"] == FIRST}
    assert f"the copy of the standby {SECOND!r} is newer" in reasons


def test_a_syncer_that_restarts_tells_nobody_what_its_standby_lacks() -> None:
    async def restart_alone(world: World) -> None:
        world.network.cut(SYNCER, FIRST)
        await asyncio.sleep(1.0)
        await kill(world, (SYNCER,), silent=False, wait_s=0.0)
        world.start(SYNCER)
        await asyncio.sleep(2.0)
        await taken_over(world, lost=True)

    world = played(restart_alone, wanted=Wanted(1, None))
    promises_kept(world)
    again = entries(world, "started", SYNCER)[1]
    assert again["sequence"] > entries(world, "started", FIRST)[0]["sequence"]


def test_a_copy_is_whole_though_its_disk_was_full_for_a_while() -> None:
    """What was written meanwhile waits, and what comes after it waits, too."""

    async def fill(world: World) -> None:
        world.disks[FIRST].spoil(full=True)
        await until(lambda: bool(entries(world, "disk", FIRST)))
        world.disks[FIRST].spoil()
        await asyncio.sleep(0.5)
        await taken_over(world, lost=True)

    world = played(fill)
    promises_kept(world)
    assert merged_by(world, FIRST)


def test_a_supervisor_that_restarts_does_not_recognise_the_old_syncer() -> None:
    async def cut_off_at_restart(world: World) -> None:
        asyncio.get_running_loop().call_later(AWAY_S - 0.5, restart, world)
        await taken_over(world, lost=False)

    def restart(world: World) -> None:
        world.processes.kill(SUPERVISOR)
        world.start(SUPERVISOR)

    world = played(cut_off_at_restart)
    promises_kept(world)
    assert SYNCER not in {entry["name"] for entry in entries(world, "recognised")}
    assert any("RefusedError" in entry["error"] for entry in entries(world, "process_ended"))


def test_a_standby_that_died_as_it_was_promoted_is_refused_and_its_copy_counts() -> None:
    async def die(world: World) -> None:
        supervisor = world.cluster.supervisor
        assert supervisor is not None
        await kill(world, (SYNCER,), silent=True, wait_s=0.0)
        await until(lambda: supervisor.memory is not None and supervisor.memory.promoted == FIRST)
        await world.kill(FIRST)
        world.start(FIRST)

    world = played(die)
    (standby,) = [entry for entry in entries(world, "refused") if "died before" in entry["reason"]]
    assert standby["name"] == FIRST
    assert merged_by(world, FIRST)
    promises_kept(world)


# --- mistakes on purpose ----------------------------------------------------------------------


class Hasty(StandbyActor):
    """Confirms a file before its disk has it, and never writes it."""

    def _perform(self, action: Action) -> None:
        late = asyncio.get_running_loop().time() > 2.0
        if isinstance(action, Store) and late:
            event: Event = Stored(action, "a digest")
            self.post(event)
        else:
            super()._perform(action)


class Careless(Standbys):
    """Has learners told before any standby has confirmed."""

    def holds(self, sequence: int) -> bool:
        return True


class WithHasty(Standing):
    standby = Hasty


class WithCareless(Standing):
    standbys = Careless


def test_a_standby_that_confirms_before_its_disk_has_a_record_is_found() -> None:
    world = played(partial(taken_over, lost=True), standing=WithHasty)
    assert "was durable, epoch" in said(world)


def test_a_syncer_that_waits_for_no_confirmation_is_found() -> None:
    world = played(cut_first, partial(taken_over, lost=True), standing=WithCareless)
    assert "was durable, epoch" in said(world)


def test_a_supervisor_that_agrees_to_any_standby_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_passed_over", lambda *_: None)
    world = played(cut_first, partial(taken_over, lost=True), wanted=Wanted(2, 0.5))
    assert [entry["name"] for entry in entries(world, "promoted")] == [FIRST]
    assert "was durable, epoch" in said(world)
