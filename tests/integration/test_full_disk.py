"""A disk that is full for a moment costs what is measured meanwhile, and holds up nobody."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from islands.config import RunSettings
from islands.telemetry import RunFolder
from tests.integration.small_disk import SmallDisk, small_disk, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=unavailable() or "")

ROWS = 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Of two megabytes."""
    with small_disk(tmp_path / "disk", 2 * 2**20) as disk:
        yield disk


def evaluate(folder: RunFolder, first: int, last: int) -> None:
    """Write rows to metrics and TensorBoard, and entries to tape and log."""
    for number in range(first, last):
        folder.evaluation(float(number), float(number), {"loss": 0.5})
        folder.write(float(number), "syncer", "disk", {"number": number})


def test_a_full_disk_holds_up_nobody_who_writes(disk: SmallDisk) -> None:
    """Each call returns, however long the disk is full, and the close as well."""
    told: list[str] = []
    folder = RunFolder(disk.folder / "run", RunSettings(), say=told.append)
    evaluate(folder, 0, 10)
    disk.fill()
    evaluate(folder, 10, ROWS)
    folder.close()
    assert folder.lost > 0
    assert "entries are missing in" in told[-1]


def test_what_was_measured_while_the_disk_was_full_is_there_once_it_has_room(
    disk: SmallDisk,
) -> None:
    """As long as it found room in memory: nothing is lost, and no line is torn."""
    folder = RunFolder(disk.folder / "run", RunSettings())
    evaluate(folder, 0, 10)
    disk.fill()
    evaluate(folder, 10, 500)
    disk.empty()
    folder.close()
    assert folder.lost == 0
    for name, kind in (("tape.jsonl", "number"), ("run.log", "number"), ("metrics.jsonl", "clock")):
        lines = (disk.folder / "run" / name).read_text().splitlines()
        assert [json.loads(line)[kind] for line in lines] == list(range(500)), name
