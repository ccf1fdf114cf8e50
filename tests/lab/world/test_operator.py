"""What an operator does to a run, with the real actors on the virtual clock."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.files.tape_writing import MemoryTape
from islands.lab.world.world import LearnerHost, World
from islands.protocol.errors import JournalError, UserError
from islands.protocol.identities import SUPERVISOR, SYNCER, Phase, Status
from islands.protocol.messages.control import CommandAnswer, Verb
from islands.protocol.settings.choices import Adoption
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.syncer.memory import ClosingStage
from messaging.codec.tensors import as_buffer, digest
from tests.lab.world.worlds import ended, entries, ledger, promises_kept, until
from tests.virtual import virtual

pytestmark = pytest.mark.simulation

SETTINGS = RunSettings(
    interval_steps=8,
    fragments=2,
    budget_tokens=4000,
    warmup_steps=0,
    learning_rate=0.02,
    timing=Timing(patience=0.2),
)
HOSTS = {f"learner-{index}": LearnerHost() for index in range(3)}


def world_of(**changed: object) -> World:
    """Three learners on a network without faults."""
    settings = changed.pop("settings", SETTINGS)
    assert isinstance(settings, RunSettings)
    return World(settings, dict(HOSTS), seed=1, tape=MemoryTape(), **changed)  # type: ignore[arg-type]


async def running(**changed: object) -> World:
    world = world_of(**changed)
    world.start_all()
    await until(lambda: tokens(world) > 500)
    return world


async def completed(world: World) -> None:
    await ended(world)
    promises_kept(world)


async def told(world: World, verb: Verb, target: str = "", count: int = 1) -> CommandAnswer:
    answer = await world.command(verb, target, count)
    assert answer is not None
    return answer


def kinds(world: World, actor: str) -> list[str]:
    return [entry["kind"] for entry in entries(world, actor=actor)]


def tokens(world: World) -> int:
    """Processed so far, as the syncer knows; 0 while there is none."""
    state = world.syncer_state
    return 0 if state is None else state.durable.ledger.processed


# ----------------------------------------------------------------------------------------- pause


@virtual
async def test_ten_minutes_of_pause_change_nothing() -> None:
    world = await running()
    assert (await told(world, Verb.PAUSE)).done
    await asyncio.sleep(2.0)
    before = tokens(world)
    await asyncio.sleep(600.0)
    assert tokens(world) == before
    status = await told(world, Verb.STATUS)
    learners = [member for member in status.members if member.name in HOSTS]
    assert {member.status for member in learners} == {Status.LIVE}
    assert {member.phase for member in learners} == {Phase.PAUSED}
    assert "is paused" in status.told
    await told(world, Verb.RESUME)
    await completed(world)
    assert "abandoned" not in kinds(world, SYNCER)[-200:]


@virtual
async def test_a_pause_outlives_the_syncer_and_the_supervisor() -> None:
    world = await running()
    await told(world, Verb.PAUSE)
    await asyncio.sleep(2.0)
    before = tokens(world)
    for name in (SYNCER, SUPERVISOR):
        await world.kill(name)
        world.start(name)
        await asyncio.sleep(20.0)
    assert tokens(world) == before
    assert (await told(world, Verb.RESUME)).done
    await completed(world)


# --------------------------------------------------------------------------- drain, add, restart


@virtual
async def test_who_is_drained_takes_no_work_with_it() -> None:
    world = await running(settings=replace(SETTINGS, adoption=Adoption.DELAY_CORRECTED))
    await told(world, Verb.DRAIN, "learner-0")
    await until(lambda: "learner-0" not in world.processes)
    await asyncio.sleep(1.0)
    ledger = world.syncer_state.durable.ledger  # type: ignore[union-attr]  # the run goes on
    assert [ledger.row(index).lost for index in range(SETTINGS.fragments)] == [0, 0]
    await completed(world)


@virtual
async def test_a_launcher_restarts_who_was_killed_and_not_who_was_drained() -> None:
    world = await running(launching=True)
    answer = await told(world, Verb.ADD)
    assert answer.told == "started learner-3"
    await told(world, Verb.DRAIN, "learner-0")
    await world.kill("learner-1")
    await until(lambda: "learner-0" not in world.processes)
    await until(lambda: "learner-1" in world.processes)
    await asyncio.sleep(3.0)
    assert "learner-0" not in world.processes
    added = world.learner("learner-3")
    assert added is not None
    assert added.state.phase is Phase.STEPPING
    await completed(world)
    assert "left" in kinds(world, SUPERVISOR)


@virtual
async def test_nobody_is_started_again_because_the_run_ended() -> None:
    world = world_of(launching=True)
    world.start_all()
    await ended(world)
    assert len(entries(world, "process_started")) == 2 + len(HOSTS)


# ----------------------------------------------------------------------------------------- stop


@virtual
async def test_stop_ends_the_run_properly() -> None:
    world = await running(settings=replace(SETTINGS, budget_tokens=1_000_000))
    assert (await told(world, Verb.STOP)).done
    await ended(world)
    assert world.finished == "stopped by an operator"
    promises_kept(world)


@virtual
async def test_the_end_is_told_to_a_supervisor_that_comes_late() -> None:
    world = await running()
    await world.kill(SUPERVISOR)
    await until(lambda: stage_of(world) is ClosingStage.FINISHED)
    await asyncio.sleep(0.5 * SETTINGS.timing.scaled(SETTINGS.timing.final_s))
    assert SYNCER in world.processes
    world.start(SUPERVISOR)
    await ended(world)
    assert world.finished == "tokens"
    promises_kept(world)


@virtual
async def test_a_supervisor_that_never_comes_is_not_waited_for_for_ever() -> None:
    world = await running()
    await world.kill(SUPERVISOR)
    await until(lambda: SYNCER not in world.processes)
    assert not world.failures


def stage_of(world: World) -> ClosingStage | None:
    closing = None if world.syncer_state is None else world.syncer_state.core.closing
    return None if closing is None else closing.stage


# ---------------------------------------------------------------------------------------- extend


async def next_run(world: World, **changed: object) -> World:
    """Everybody is started again on the same disks, with other settings."""
    later = world_of(settings=replace(SETTINGS, **changed))  # type: ignore[arg-type]
    later.disks = world.disks
    later.start_all()
    return later


@virtual
async def test_a_run_that_has_ended_can_be_extended() -> None:
    first = world_of()
    first.start_all()
    await ended(first)
    versions = final(first)["versions"]
    later = await next_run(first, budget_tokens=7000)
    await until(lambda: tokens(later) > 4500)
    assert later.syncer_state is not None
    assert later.syncer_state.durable.epoch > 1
    await ended(later)
    again = final(later)["versions"]
    assert all(
        int(b.split(".")[1]) > int(a.split(".")[1]) for a, b in zip(versions, again, strict=True)
    )
    for row in ledger(later):
        assert row["processed"] == 7000
        fates = ("applied", "rejected", "late", "stale", "overwritten", "lost", "pending")
        assert sum(row[fate] for fate in fates) == 7000
    assert "extended" in kinds(later, SYNCER)


def final(world: World) -> dict[str, list[str]]:
    (entry,) = entries(world, "final")
    return entry


@pytest.mark.parametrize(("budget", "sentence"), [(4000, "is over"), (100, "cannot be cut")])
@virtual
async def test_a_run_that_has_ended_is_not_begun_again(budget: int, sentence: str) -> None:
    first = world_of()
    first.start_all()
    await ended(first)
    later = await next_run(first, budget_tokens=budget)
    await until(lambda: bool(later.failures))
    ((name, error),) = later.failures
    assert name == SYNCER
    assert isinstance(error, JournalError)
    assert sentence in str(error)
    await later.kill_all()


# ------------------------------------------------------------------------------------ warm start


Values = list[NDArray[np.float32]]


def values_of(world: World) -> Values:
    """Some initial value, unlike what a learner would bring."""
    return [np.full(fragment.size, 0.25, np.float32) for fragment in world.layout.fragments]


@virtual
async def test_a_run_can_start_from_given_values() -> None:
    given = values_of(world_of())
    world = world_of(initial=lambda: given)
    world.start_all()
    await until(lambda: tokens(world) > 200)
    adopted = reversed(entries(world, "adopted"))
    first = {entry["fragment"]: entry["digest"] for entry in adopted}
    assert first == {index: digest(as_buffer(value)) for index, value in enumerate(given)}
    await completed(world)


def missing(_: Values) -> Values:
    raise UserError("there is no file x to start from")


@pytest.mark.parametrize(
    ("spoilt", "sentence"),
    [
        (lambda values: values[:1], "has 1 fragments, the run has 2"),
        (lambda values: [values[0][1:], values[1]], "the initial value of fragment 0"),
        (lambda values: [values[0] * np.float32(np.nan), values[1]], "finite = False"),
        (missing, "there is no file x to start from"),
    ],
)
@virtual
async def test_values_that_cannot_be_used_end_the_syncer(
    spoilt: Callable[[Values], Values], sentence: str
) -> None:
    values = values_of(world_of())
    world = world_of(initial=lambda: spoilt(values))
    world.start_all()
    await until(lambda: bool(world.failures))
    ((name, error),) = world.failures
    assert name == SYNCER
    assert isinstance(error, UserError)
    assert sentence in str(error)
    await world.kill_all()
