"""What an operator may ask of a run: each wish by the documented command, from another process."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from safetensors.numpy import load_file, save_file

from islands.protocol.identities import Phase
from islands.protocol.messages.control import StepFigures
from islands.protocol.settings.run import RunSettings, Timing
from islands.settings.run_spec import read
from messaging.codec.tensors import as_buffer, digest
from tests.integration.fleet import WatchedHub, make_fleet, running
from tests.integration.programs import (
    LIMIT_S,
    Room,
    control,
    entries,
    imbalance,
    logged,
    merges,
    open_room,
    processed,
    summary_of,
    write_config,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAIR = ("learner-0", "learner-1")
Place = tuple[Room, WatchedHub]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A run of two learners that merges, and a room for its operator; for the first tests."""
    folder = tmp_path_factory.mktemp("operator")
    timing = Timing(heartbeat_s=0.25)  # figures come with heartbeats
    settings = RunSettings(run="watched", interval_steps=8, fragments=4, timing=timing)
    task: dict[str, object] = {"step_s": 0.05, "megabytes": 0.25}
    hub = make_fleet(folder / "run", settings, task, learners=2)
    async with open_room(folder) as room, running(hub):
        await hub.wait_merge_of(PAIR, LIMIT_S)
        yield room, hub


@pytest.mark.asyncio(loop_scope="module")
async def test_an_operator_sees_who_is_here(place: Place) -> None:
    told = await control(place[0], "status")
    for name in (*PAIR, "syncer"):
        assert name in told.out
    assert "run watched goes on with 2 learners, 2 of them live" in told.out


@pytest.mark.asyncio(loop_scope="module")
async def test_a_learner_is_added_and_drained(place: Place) -> None:
    room, hub = place
    assert "started learner-2" in (await control(room, "add")).out
    await hub.wait_merge_of(("learner-2",), LIMIT_S)
    await control(room, "drain", "learner-2")
    await hub.wait_until(lambda: "learner-2" not in hub.launcher, LIMIT_S)
    await hub.wait_merge_of(PAIR, LIMIT_S)
    assert hub.launcher.names() == ["syncer", *PAIR]
    folder = room.folder / "run"

    def ends() -> list[object]:
        told = logged(folder, "process_ended", actor="hub", name="learner-2")
        return [end["error"] for end in told]

    await hub.wait_until(lambda: bool(ends()), LIMIT_S)  # the log is written beside the run
    assert ends() == [""]
    assert logged(folder, "left", name="learner-2", reason="drained by an operator")
    nobody = await control(room, "drain", "nobody", code=1)
    assert "there is no learner 'nobody' here; the learners are: learner-0, learner-1" in nobody.out


@pytest.mark.asyncio(loop_scope="module")
async def test_a_paused_run_does_not_step_until_it_is_resumed(place: Place) -> None:
    room, hub = place
    await control(room, "pause")
    members = hub.members
    await hub.wait_until(lambda: all(members[n].phase is Phase.PAUSED for n in PAIR), LIMIT_S)
    await reported(hub)
    steps = {name: hub.told[name].steps for name in PAIR}
    assert "is paused" in (await control(room, "status")).out
    await reported(hub)
    assert {name: hub.told[name].steps for name in PAIR} == steps
    await control(room, "resume")
    await hub.wait_merge_of(PAIR, LIMIT_S)
    assert "goes on" in (await control(room, "status")).out


async def reported(hub: WatchedHub) -> None:
    """Wait until both learners have told their figures once more, and again."""
    for _ in range(2):
        told = [hub.told[name] for name in PAIR]
        await hub.wait_until(partial(_all_new, hub, told), LIMIT_S)


def _all_new(hub: WatchedHub, told: list[StepFigures]) -> bool:
    return all(hub.told[name] is not old for name, old in zip(PAIR, told, strict=True))


@pytest.mark.long(
    "tests/integration/test_processes.py::test_a_killed_learner_is_started_again_and_merges"
)
async def test_a_stopped_run_has_a_proper_end(tmp_path: Path) -> None:
    config = write_config(tmp_path / "run.yaml", learners=2)
    folder = tmp_path / "run"
    async with open_room(tmp_path) as room:
        run = room.start("islands.cli", "run", config, "--folder", folder)
        await room.wait(lambda: merges(folder) > 2)
        await control(room, "stop")
        assert await room.ended(run) == 0
        after = await control(room, "status", code=1)
    assert "Traceback" not in after.err
    summary = summary_of(folder)
    assert summary is not None
    assert imbalance(summary) == 0
    assert summary["reason"] == "stopped by an operator"
    assert (folder / "final.safetensors").exists()


# --- more of a run, or another one from where it ended --------------------------------------------


@pytest.mark.long("tests/lab/world/test_operator.py::test_a_run_that_has_ended_can_be_extended")
async def test_a_run_that_has_ended_goes_on_with_more(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", learners=2)
    command = ("islands.cli", "run", config, "--folder", folder, "--run.budget_tokens")
    async with open_room(tmp_path) as room:
        first = await room.run(*command, 1000)
        assert first.process.returncode == 0, first
        again = await room.run(*command, 1000)
        assert again.process.returncode == 2, again
        assert "--extend" in again.err
        more = await room.run(*command, 2000, "--extend")
        assert more.process.returncode == 0, more
    summary = summary_of(folder)
    assert summary is not None
    assert summary["reason"] == "tokens"
    assert set(processed(summary)) == {2000}
    assert imbalance(summary) == 0


@pytest.mark.long("tests/run/test_model_files.py::test_a_file_becomes_one_value_per_fragment")
async def test_a_run_starts_from_the_end_of_another(tmp_path: Path) -> None:
    config = write_config(tmp_path / "run.yaml", learners=1, run={"budget_tokens": 400})
    async with open_room(tmp_path) as room:
        first = await room.run("islands.cli", "run", config, "--folder", "first")
        assert first.process.returncode == 0, first
        final = tmp_path / "first" / "final.safetensors"
        second = await room.run(
            *("islands.cli", "run", config, "--folder", "second", "--start_from", final)
        )
        assert second.process.returncode == 0, second
        other = tmp_path / "other.safetensors"
        save_file({"layers/0": np.zeros((3, 3), np.float32)}, other)
        third = await room.run(
            *("islands.cli", "run", config, "--folder", "third", "--start_from", other)
        )
        values = load_file(final)
        final.unlink()  # of which a run that has begun has no more need
        more = await room.run(
            *("islands.cli", "run", config, "--folder", "second", "--start_from", final),
            *("--run.budget_tokens", 800, "--extend"),
        )
        assert more.process.returncode == 0, more
    assert third.process.returncode == 2, third
    assert "is of another model" in third.err
    assert "Traceback" not in third.err
    known = read(tmp_path / "second")
    assert known is not None
    flat = known[1].layout.disassemble(values)
    tape = tmp_path / "second" / "processes" / "learner-0" / "tape.jsonl"
    adopted = {
        e["fragment"]: e["digest"] for e in entries(tape, "adopted") if e["version"] == "1.0"
    }
    assert adopted == {i: digest(as_buffer(value)) for i, value in enumerate(flat)}
