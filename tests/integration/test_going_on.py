"""What an operator does to a run's folder by mistake, or has to: the run goes on."""

import asyncio
import shutil
from pathlib import Path

import pytest

from islands.cli.control import target_of, tell
from islands.protocol.messages.control import Verb
from islands.protocol.settings.run import RunSettings
from islands.settings.commands import OperatorOptions
from tests.integration.fleet import WatchedHub, make_fleet, running
from tests.integration.programs import (
    LIMIT_S,
    entries,
    hub_address,
    imbalance,
    incarnations,
    logged,
    open_room,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAIR = ("learner-0", "learner-1")
AWAY_S = 6.0


def fleet(folder: Path) -> WatchedHub:
    """A hub in this process; a syncer and two learners, without JAX, in others.

    Both take part in every merge, however busy the machine is.
    """
    settings = RunSettings(run="fleet", interval_steps=8, fragments=4, quorum=2)
    return make_fleet(folder, settings, {"step_s": 0.01, "megabytes": 0.25}, learners=2)


def failures(folder: Path) -> list[tuple[object, object]]:
    ends = logged(folder, "process_ended", actor="hub")
    return [(entry["name"], entry["error"]) for entry in ends if entry["error"]]


async def end(folder: Path, run: "asyncio.Task[dict[str, object] | None]") -> dict[str, object]:
    """Stop a run properly; returns its summary."""
    answer = await tell(target_of(OperatorOptions(folder=folder)), Verb.STOP, "", 1)
    assert answer.done
    async with asyncio.timeout(LIMIT_S):
        summary = await run
    assert summary is not None
    return summary


@pytest.mark.long(
    "tests/integration/test_second_syncer.py::test_a_second_start_is_refused_while_the_first_one_lives"
)
async def test_a_run_goes_on_when_a_second_syncer_is_started_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    hub = fleet(folder)
    async with running(hub) as run, open_room(tmp_path) as room:
        await hub.wait_merge_of(PAIR, LIMIT_S)
        second = await room.run(
            "islands.syncer",
            *("--supervisor", hub_address(folder), "--folder", "run", "--name", "syncer"),
            *("--token_file", folder / "token", "--key_file", folder / "key"),
        )
        assert second.process.returncode == 2, str(second)
        assert "is in use by another syncer" in second.err
        await hub.wait_merge_of(PAIR, LIMIT_S)
        summary = await end(folder, run)
    assert incarnations(summary) == dict.fromkeys(PAIR, 1)
    assert imbalance(summary) == 0
    assert failures(folder) == []
    assert len(entries(folder / "processes" / "syncer" / "tape.jsonl", "started")) == 1


async def swap(hub: WatchedHub, source: Path, target: Path) -> None:
    """Kill the syncer, and while it is away replace one folder by a copy of the other."""
    hub.cluster.hold("syncer", AWAY_S)
    hub.launcher.kill("syncer")
    await hub.wait_until(lambda: "syncer" not in hub.launcher, LIMIT_S)
    await asyncio.to_thread(shutil.rmtree, target, ignore_errors=True)
    await asyncio.to_thread(shutil.copytree, source, target)
    await hub.wait_merge_of(PAIR, LIMIT_S)


@pytest.mark.long(
    "tests/lab/world/test_lost_folder.py::test_a_copy_from_before_another_start_ends_once_and_then_goes_on"
)
async def test_a_run_goes_on_from_a_copy_of_its_journal(tmp_path: Path) -> None:
    """The copy of its epoch beside the folder tells of the starts since, so it begins a later one.

    Learners hold what it has never heard of, so they begin a new account.
    """
    folder, copy = tmp_path / "run", tmp_path / "copy"
    hub = fleet(folder)
    async with running(hub) as run:
        await hub.wait_merge_of(PAIR, LIMIT_S)
        await swap(hub, folder / "journal", copy)
        merged = len(hub.merges)
        await hub.wait_until(lambda: len(hub.merges) > merged + 8, LIMIT_S)
        await swap(hub, copy, folder / "journal")
        summary = await end(folder, run)
    assert imbalance(summary) == 0
    fenced = [str(how).partition(":")[0] for _, how in failures(folder)]
    assert fenced == ["killed by SIGKILL", "killed by SIGKILL"]
    assert {name for name, _ in failures(folder)} == {"syncer"}
    assert summary["reason"] == "stopped by an operator"
