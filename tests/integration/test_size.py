"""Runs of unusual sizes, as real processes: many fragments, large fragments."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from islands.cli.dry_run import examine
from islands.cli.parsing import Common
from islands.settings.groups import RunFile
from islands.settings.host import RunOptions
from tests.integration.fleet import SLEEPING
from tests.integration.programs import merges, open_room, peak_bytes, pids, write_config

PROGRAMS_BYTES = 600 << 20
"""What code and libraries of a syncer and a learner take beside what they hold."""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def journal_bytes(folder: Path) -> int:
    """Bytes of the journal's slots, without a record that is being written."""
    return sum(path.stat().st_size for path in (folder / "journal").glob("[!.]*"))


async def test_a_run_of_many_fragments_joins_and_merges(tmp_path: Path) -> None:
    slow = {"step_s": 0.2, "megabytes": 0.25}
    many = {"fragments": 600, "interval_steps": 24}
    config = write_config(tmp_path / "run.yaml", learners=1, run=many, task_settings=slow)
    async with open_room(tmp_path) as room:
        room.start("islands.cli", "run", config, "--folder", tmp_path / "run")
        await room.wait(lambda: merges(tmp_path / "run") > 3)


@pytest.mark.long("tests/run/test_planner.py::test_memory_of_a_learner")
async def test_the_dry_run_says_what_a_run_takes(tmp_path: Path) -> None:
    task_settings = {"step_s": 0.1, "megabytes": 64}
    run = {"fragments": 2, "interval_steps": 4, "staleness_max": 0}
    told = {"task": SLEEPING, "task_settings": task_settings, "run": run}
    options = RunOptions(msgspec.convert(told, RunFile), learners=1, folder=tmp_path / "other")
    found = await asyncio.to_thread(examine, options, Common())
    assert found.estimate is not None, found.refused
    said = found.estimate.host_bytes(1)
    folder = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", learners=1, run=run, task_settings=task_settings)
    async with open_room(tmp_path) as room:
        hub = room.start("islands.cli", "run", config, "--folder", folder)
        await room.wait(lambda: merges(folder) >= 8)
        taken = {name: peak_bytes(pid) for name, pid in {"hub": hub.pid, **pids(folder)}.items()}
        said_disk = found.estimate.disk_bytes - found.estimate.disk_per_round
        await room.wait(lambda: journal_bytes(folder) >= 0.99 * said_disk)
        journal = journal_bytes(folder)
    assert 0.5 * said < taken["syncer"] + taken["learner-0"] < said + PROGRAMS_BYTES, (taken, said)
    assert journal <= 1.01 * said_disk
