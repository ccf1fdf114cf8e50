"""A task that fails in a real run: the screen shows the user's line, and the lines behind it."""

from pathlib import Path

import pytest

from tests.integration.programs import Room, open_room, write_config

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TASKS = """
from tests.broken_tasks import Sound


class Lost(Sound):
    def batches(self, shard, position):
        open("nowhere/data.bin")
        yield from super().batches(shard, position)
"""


def started(room: Room, name: str) -> tuple[Path, object]:
    """A run of two learners on one of the tasks, and its folder."""
    (room.folder / "mine.py").write_text(TASKS)
    settings = {"interval_steps": 8, "budget_tokens": 200}
    config = write_config(
        room.folder / "run.yaml",
        task=f"mine:{name}",
        task_settings={},
        learners=2,
        run={"run": "bad", **settings},
        evaluate_every_s=0.5,
    )
    return room.folder / "run", config


@pytest.mark.long(
    "tests/run/test_single_process.py::test_a_task_that_raises_ends_the_run_with_one_sentence"
)
async def test_a_loader_whose_file_is_missing_ends_the_run_with_its_line(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        folder, config = started(room, "Lost")
        program = await room.run("islands.cli", "run", config, "--folder", folder)
    assert program.process.returncode == 2, program
    assert 'open("nowhere/data.bin")' in program.err
    last = program.err.splitlines()[-1]
    assert "mine.py:7, in batches: FileNotFoundError" in last
    assert program.err.count("Traceback") == 1
    for name in ("learner-0", "learner-1"):
        log = (folder / "processes" / name / "output.log").read_text()
        assert log.count("Traceback") <= 1, "it was not started again"
