"""What an operator does to a run's folder by mistake, or has to: the run goes on."""

import asyncio
from pathlib import Path

import pytest

from islands.cli.control import target_of, tell
from islands.config import RunSettings
from islands.operation import Verb
from islands.options import ControlOptions
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


def fleet(folder: Path) -> WatchedHub:
    """A hub in this process; a syncer and two learners, without JAX, in others.

    Both take part in every merge, however busy the machine is.
    """
    settings = RunSettings(run="fleet", interval_steps=8, fragments=4, quorum=2)
    return make_fleet(folder, settings, {"step_s": 0.01, "megabytes": 0.25}, learners=2)


def failures(folder: Path) -> list[tuple[object, object]]:
    """Who ended before its time, and how."""
    ends = logged(folder, "process_ended", actor="hub")
    return [(entry["name"], entry["error"]) for entry in ends if entry["error"]]


async def end(folder: Path, run: "asyncio.Task[dict[str, object] | None]") -> dict[str, object]:
    """Stop a run properly; returns its summary."""
    answer = await tell(target_of(ControlOptions(Verb.STOP, folder=folder)), Verb.STOP, "", 1)
    assert answer.done
    async with asyncio.timeout(LIMIT_S):
        summary = await run
    assert summary is not None
    return summary


async def test_a_run_goes_on_when_a_second_syncer_is_started_in_its_folder(tmp_path: Path) -> None:
    """The second one ends at once with a sentence; nobody of the first run is ended or evicted."""
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
