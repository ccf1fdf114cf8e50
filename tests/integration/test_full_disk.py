"""A disk that is full for a moment costs what is measured meanwhile, and holds up nobody."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from islands.model.evaluation import Judged
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.member_entries import StoodStill
from islands.run.hosting.process_identity import marked
from islands.run.records.model_files import load_model
from islands.run.records.run_folder import RunFolder
from tests.integration.programs import logged, merges, open_room, summary_of, write_config
from tests.integration.small_disk import SmallDisk, kept_full, small_disk, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=unavailable() or "")

ROWS = 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 2 * 2**20) as disk:
        yield disk


def evaluate(folder: RunFolder, first: int, last: int) -> None:
    """Write rows to metrics and TensorBoard, and entries to tape and log."""
    for number in range(first, last):
        folder.evaluation(float(number), Judged(float(number), number), {"loss": 0.5})
        folder.write(float(number), "syncer", StoodStill(float(number)))


def test_a_full_disk_holds_up_nobody_who_writes(disk: SmallDisk) -> None:
    told: list[str] = []
    folder = RunFolder(disk.folder / "run", RunSettings(), say=told.append)
    evaluate(folder, 0, 10)
    disk.fill()
    evaluate(folder, 10, ROWS)
    folder.close()
    assert folder.lost > 0
    assert "which cannot be written" in told[-1]


def test_what_was_measured_while_the_disk_was_full_is_there_once_it_has_room(
    disk: SmallDisk,
) -> None:
    folder = RunFolder(disk.folder / "run", RunSettings())
    evaluate(folder, 0, 10)
    disk.fill()
    evaluate(folder, 10, 500)
    disk.empty()
    folder.close()
    assert folder.lost == 0
    for name, kind in (("tape.jsonl", "gap_s"), ("run.log", "gap_s"), ("metrics.jsonl", "clock")):
        lines = (disk.folder / "run" / name).read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        assert [row[kind] for row in rows if kind in row] == list(range(500)), name


@pytest.mark.integration
@pytest.mark.timeout(120)
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
@pytest.mark.integration
@pytest.mark.timeout(120)
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
