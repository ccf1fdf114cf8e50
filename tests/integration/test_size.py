"""Runs of unusual sizes, as real processes: many fragments, large fragments."""

from pathlib import Path

import pytest

from tests.integration.programs import merges, open_room, write_config

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


async def test_a_run_of_many_fragments_joins_and_merges(tmp_path: Path) -> None:
    """A learner that greets with 600 fragments is understood, and all of them are published."""
    slow = {"step_s": 0.2, "megabytes": 0.25}
    many = {"fragments": 600, "interval_steps": 24}
    config = write_config(tmp_path / "run.yaml", learners=1, run=many, task_settings=slow)
    async with open_room(tmp_path) as room:
        room.start("islands.cli", "run", config, "--folder", tmp_path / "run")
        await room.wait(lambda: merges(tmp_path / "run") > 3)
