"""More of a run, or another one from where it ended, by the documented command."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from islands.settings.run_spec import read
from messaging.codec.tensors import as_buffer, digest
from tests.integration.programs import (
    entries,
    imbalance,
    open_room,
    processed,
    summary_of,
    write_config,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


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
