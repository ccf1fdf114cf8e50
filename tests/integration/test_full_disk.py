"""A disk that is full for a moment costs what is measured meanwhile, and holds up nobody."""

import signal
from pathlib import Path

import pytest

from islands.run.hosting.process_identity import marked
from islands.run.records.model_files import load_model
from tests.integration.programs import logged, merges, open_room, summary_of, write_config
from tests.integration.small_disk import kept_full, small_disk, unavailable

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(120),
    pytest.mark.skipif(unavailable() is not None, reason=unavailable() or ""),
]


async def test_a_run_goes_on_by_itself_and_can_be_ended_while_its_disk_is_full(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "disk"
    config = write_config(tmp_path / "run.yaml", learners=2)
    with small_disk(folder, 24 * 2**20) as disk:
        async with open_room(tmp_path) as room:
            run = room.start("islands.cli", "run", config, "--folder", folder)
            await room.wait(lambda: merges(folder) > 3)
            async with kept_full([disk]):
                await room.wait(lambda: "cannot be written: No space left on device" in run.err)
            before = merges(folder)
            await room.wait(lambda: merges(folder) > before)
            await room.wait(lambda: "can be written again" in run.err)
            async with kept_full([disk]):
                await room.wait(lambda: run.err.count("cannot be written") > 1)
                run.process.send_signal(signal.SIGTERM)
                assert await room.ended(run) == 0


@pytest.mark.long("test_a_run_goes_on_by_itself_and_can_be_ended_while_its_disk_is_full")
async def test_a_run_that_ends_while_its_disk_is_full_is_concluded_once_there_is_room(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "disk"
    run = {"budget_tokens": 4_000}
    config = write_config(tmp_path / "run.yaml", learners=2, run=run)
    with small_disk(folder, 24 * 2**20) as disk, small_disk(folder / "journal", 8 * 2**20):
        async with open_room(tmp_path) as room:
            program = room.start("islands.cli", "run", config, "--folder", folder)
            await room.wait(lambda: merges(folder) > 3)
            async with kept_full([disk]):
                await room.wait(lambda: set(marked(folder)) == {"syncer"})
            assert await room.ended(program) == 0
            summary = summary_of(folder)
            assert summary is not None
            assert summary["tokens"] == 4_000
            assert load_model(folder)
            assert len(logged(folder, "started", actor="syncer")) == 1, "it waited, and did not end"
