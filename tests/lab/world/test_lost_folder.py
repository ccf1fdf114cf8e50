"""The folder of a hub is lost, or its journal comes from an older copy, while learners live on."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.lab.world.world import LearnerHost, NumpyTrainers, World
from islands.protocol.errors import FAILED, OutdatedError, exit_code_of
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.journalling import APART
from islands.protocol.syncer.versions import waits_s
from tests.lab.world.worlds import entries, finished, ledger, lived

pytestmark = pytest.mark.simulation
HOSTS = {"ana": LearnerHost(), "ben": LearnerHost(step_s=0.07), "cleo": LearnerHost(step_s=0.2)}
BUDGET = 6000
SETTINGS = RunSettings(interval_steps=8, fragments=4, budget_tokens=BUDGET, seed=1)
KEYS = {"with its key": b"another key of the run", "the key is kept": b"a key of the simulated run"}


def played(
    live: Callable[[World], Awaitable[None]],
    initial: Callable[[], list[NDArray[np.float32]]] | None = None,
    *,
    after_s: float = 6.0,
) -> World:
    """Begin a run, do something to it after some seconds, and follow it to its end."""
    return lived(SETTINGS, HOSTS, after_s, live, finished, seed=5, initial=initial)


def balanced(world: World) -> list[dict[str, int]]:
    """The rows of the final ledger, which processed the budget to less than a step."""
    rows = ledger(world)
    for row in rows:
        fates = ("applied", "rejected", "late", "stale", "overwritten", "lost", "pending")
        assert row["processed"] == sum(row[fate] for fate in fates)
        assert BUDGET - 8 < row["processed"] <= BUDGET
    return rows


async def lose(world: World, key: bytes) -> dict[str, list[tuple[str, str]]]:
    """Kill the hub, take its folder away, and start it in an empty one; what learners hold then."""
    await world.kill(SUPERVISOR)
    await world.kill(SYNCER)
    await asyncio.sleep(0.5)  # what was on its way is adopted
    held = holds(world)
    world.lose_hub(key)
    world.start(SUPERVISOR)
    world.start(SYNCER)
    return held


async def seeded(world: World) -> list[str]:
    """The digests of version 0, once there is one."""
    for _ in range(300):
        await asyncio.sleep(0.01)
        state = world.syncer_state
        if state is not None and state.core.seeded:
            return [one.digest for one in state.core.versions.published if one is not None]
    return []


def holds(world: World) -> dict[str, list[tuple[str, str]]]:
    """Version and digest of each fragment that each learner has adopted."""
    found = {}
    for name in HOSTS:
        learner = world.learner(name)
        assert learner is not None
        accounts = learner.state.accounts
        found[name] = [(str(account.version), account.digest) for account in accounts]
    return found


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
@pytest.mark.parametrize("from_file", [False, True], ids=["from init", "from a file"])
def test_learners_bring_back_the_newest_values(key: bytes, *, from_file: bool) -> None:
    """Each joins anew and goes on in its process; the run begins from what one holds, to the bit.

    So it does where version 0 of the first run was a file, which the hub has, too.
    """
    before: dict[str, list[tuple[str, str]]] = {}
    begun: list[str] = []

    async def live(world: World) -> None:
        before.update(await lose(world, key))
        await asyncio.sleep(waits_s(SETTINGS.timing) - 1.0)
        assert entries(world, "seeded")[1:] == [], "it waits for those who have not come yet"
        begun.extend(await seeded(world))

    file = NumpyTrainers(SETTINGS)("", LearnerHost())
    initial = [file.value(index) for index in range(SETTINGS.fragments)] if from_file else None
    world = played(live, None if initial is None else (lambda: initial))
    (taken,) = entries(world, "taken_back")
    assert taken["members"] == len(HOSTS)
    told = before[str(taken["name"])]
    assert begun == [digest for _, digest in told]
    assert all(version > "1.0" for version, _ in told)
    assert max(before.values()) == told
    started = [str(one["name"]) for one in entries(world, "process_started")]
    assert sorted(started) == sorted([*HOSTS, SUPERVISOR, SUPERVISOR, SYNCER, SYNCER])
    merged = [one for one in entries(world, "merged") if one["participants"] == [*HOSTS]]
    assert len(merged) > 10


def test_a_hub_that_no_earlier_member_can_find_waits_for_none() -> None:
    begun: list[str] = []

    async def live(world: World) -> None:
        await lose(world, b"another key of the run")
        await world.kill(SYNCER)
        world.may_return = False
        world.start(SYNCER)
        await asyncio.sleep(3.0)
        begun.extend(await seeded(world))

    world = played(live)
    assert entries(world, "taken_back") == []
    assert len(begun) == SETTINGS.fragments


def test_a_supervisor_without_its_folder_ends_once_and_then_goes_on() -> None:
    """Members prove the epoch that it does not know, so that its next start is above that one.

    None of them is admitted anew.
    """
    ended: list[BaseException] = []

    async def live(world: World) -> None:
        for _ in range(3):
            await world.kill(SUPERVISOR)
            world.start(SUPERVISOR)
            await asyncio.sleep(3.0)
        await world.kill(SUPERVISOR)
        world.disks[SUPERVISOR].restore({})
        world.start(SUPERVISOR)
        await asyncio.sleep(3.0)
        ended.extend(error for _, error in world.failures)
        world.failures.clear()
        world.start(SUPERVISOR)

    world = played(live)
    assert list(map(type, ended)) == [OutdatedError]
    assert exit_code_of(ended[0]) == FAILED
    of_it = [one["epoch"] for one in entries(world, "started") if one["actor"] == SUPERVISOR]
    assert of_it == [1, 2, 3, 4, 1, 5]
    assert len(entries(world, "admitted")) == len(HOSTS) + 1


def test_a_syncer_keeps_its_journal_where_the_supervisor_begins_anew() -> None:
    ended: list[BaseException] = []

    async def live(world: World) -> None:
        kept = world.disks[SYNCER].copied()
        await world.kill(SUPERVISOR)
        world.lose_hub()
        world.disks[SYNCER].restore(kept)
        world.start(SUPERVISOR)
        await asyncio.sleep(3.0)
        ended.extend(error for _, error in world.failures)
        world.failures.clear()
        world.start(SYNCER)

    world = played(live)
    assert list(map(type, ended)) == [OutdatedError]
    assert len(entries(world, "seeded")) == 1
    assert balanced(world)


# --- a journal from an older copy -------------------------------------------------------------


async def restore(world: World, copy: dict[str, bytes]) -> None:
    """Kill the syncer, and start it over an older copy of its journal."""
    await world.kill(SYNCER)
    world.disks[SYNCER].restore(copy)
    world.start(SYNCER)


async def fenced(world: World) -> None:
    """The syncer ends because learners follow another start of it, and is started again."""
    await asyncio.sleep(2.0)
    ((name, error),) = world.failures
    assert (name, type(error)) == (SYNCER, OutdatedError)
    world.failures.clear()
    world.start(SYNCER)


def test_the_run_goes_on_and_the_ledger_balances() -> None:
    """Copied after 6 seconds, restored after 14: each learner comes back as another, once.

    The budget is processed as the restored books count it, to the token; what was done in between
    is on the tape.
    """

    async def live(world: World) -> None:
        copy = world.disks[SYNCER].copied()
        await asyncio.sleep(8.0)
        await restore(world, copy)

    world = played(live)
    wrong = entries(world, "wrong_report", SYNCER)
    assert sorted(entry["name"] for entry in wrong) == sorted(HOSTS)
    assert all(int(entry["untold_tokens"]) > 0 for entry in wrong)
    assert all(row["applied"] > BUDGET / 4 for row in balanced(world))


def test_a_copy_from_before_another_start_ends_once_and_then_goes_on() -> None:
    """Learners prove a start that the copy does not know: its epochs would be given twice.

    So the syncer ends, fenced, and the start after it takes a higher epoch.
    """

    async def live(world: World) -> None:
        copy = world.disks[SYNCER].copied()
        for _ in range(2):
            await world.kill(SYNCER)
            world.start(SYNCER)
            await asyncio.sleep(4.0)
        await restore(world, copy)
        await fenced(world)

    world = played(live, after_s=4.0)
    epochs = [entry["epoch"] for entry in entries(world, "started", SYNCER)]
    assert epochs == [1, 2, 3, 2, 4 + APART]


def test_without_any_journal_the_run_begins_anew_with_what_learners_hold() -> None:
    async def live(world: World) -> None:
        await restore(world, {})
        await fenced(world)

    world = played(live)
    versions = [entry["version"] for entry in entries(world, "seeded", SYNCER)]
    assert versions == ["1.0", f"{2 + APART}.0"]
