"""A run that is stopped leaves its parameters behind, and goes on from its journal later."""

import signal
from pathlib import Path

import pytest

import islands
from tests.integration.programs import hub_address, merges, open_room, write_config

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.quick("run")
@pytest.mark.parametrize("started_as", ["run", "hub"])
async def test_ctrl_c_leaves_a_final_file(started_as: str, tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        folder = tmp_path / "run"
        config = write_config(tmp_path / "run.yaml", learners=1)
        if started_as == "run":
            program = room.start("islands.cli", "run", config, "--folder", folder)
        else:
            program = room.start("islands.syncer", "--config", config, "--folder", folder)
            address = await room.wait(lambda: hub_address(folder))
            room.start("islands.learner", "--supervisor", address, "--name", "a")
        await room.wait(lambda: merges(folder) > 2)
        program.process.send_signal(signal.SIGINT)
        assert await room.ended(program) == 0, program
    told = islands.described(folder)
    assert str(told["reason"]).startswith("stopped")
    assert isinstance(told["tokens"], int)
    assert told["tokens"] > 0
    assert told["task"] == "islands.lab.toys.toy_workload:Sleeping"
    assert islands.load(folder)
