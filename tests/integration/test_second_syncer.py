"""Two processes of `python -m islands.syncer` on one journal."""

from pathlib import Path

import pytest

from islands.run.roles import journal_disk
from tests.integration.programs import open_room

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


async def test_a_second_start_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    words = ("--supervisor", "ws://127.0.0.1:9", "--wait_s", "80", "--folder", "run")
    async with open_room(tmp_path) as room:
        first = room.start("islands.syncer", *words)
        await room.wait(lambda: "waiting for the supervisor" in first.err)
        second = await room.run("islands.syncer", *words)
        assert second.process.returncode == 2
        (line,) = second.err.splitlines()
        assert "run/journal is in use by another syncer" in line
        assert first.process.poll() is None
        first.process.kill()
        first.process.wait()
        journal_disk(tmp_path / "run").close()
