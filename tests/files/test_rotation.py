"""Files that grow with a run are turned over: bounded space, no gap up to the newest line."""

import shutil
from pathlib import Path

import pytest
from msgspec import structs

from islands.files.growing_files import RotatingFile, Spool, older
from islands.protocol.identities import Status
from islands.protocol.messages.control import StepFigures
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.member_entries import StatusChanged
from islands.run.records.run_folder import RunFolder
from islands.sinks.tensorboard import EventFiles
from tests.board_reader import events_of
from tests.protocol.tape.samples import MERGED

HOUR_S = 3600.0
DAYS = 30
SMALL = ("figures", "settings", "versions")


def lines(path: Path) -> list[int]:
    """The numbers in a file and the one before it, in order."""
    texts = [each.read_text() for each in (older(path), path) if each.exists()]
    return [int(line) for line in "".join(texts).splitlines()]


def points(path: Path) -> list[tuple[str, int]]:
    """Tag and step of the scalars of an event file."""
    return [(value.tag, event.step) for event in events_of(path) for value in event.summary.value]


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("limit_bytes", [1, 100, 10**6])
def test_a_file_and_the_one_before_it_hold_the_newest_lines(
    tmp_path: Path, limit_bytes: int
) -> None:
    path = tmp_path / "run.log"
    file = RotatingFile(path, limit_bytes)
    for number in range(300):
        file.write(b"%d\n" % number)
    file.close()
    found = lines(path)
    assert found == list(range(found[0], 300))
    assert held(tmp_path) < 2 * limit_bytes + 8
    assert {each.name for each in tmp_path.iterdir()} <= {"run.log", "run.1.log"}


def test_a_restart_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for start in range(0, 100, 10):
        file = RotatingFile(path, 60)
        for number in range(start, start + 10):
            file.write(b"%d\n" % number)
        file.close()
    assert lines(path)[-1] == 99
    assert held(tmp_path) < 130


def test_a_file_that_cannot_be_turned_over_goes_on_and_is_turned_over_later(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    older(path).mkdir()
    file = RotatingFile(path, 20)
    for number in range(10, 17):
        file.write(b"%d\n" % number)
    for _ in range(3):
        with pytest.raises(IsADirectoryError):
            file.write(b"17\n")
    older(path).rmdir()
    for number in range(17, 19):
        file.write(b"%d\n" % number)
    file.close()
    assert lines(path) == list(range(10, 19))
    assert path.read_text() == "17\n18\n"


def test_a_file_that_is_deleted_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "run" / "run.log"
    file = RotatingFile(path, head=b"0\n")
    file.write(b"1\n")
    shutil.rmtree(path.parent)
    file.write(b"2\n")
    path.unlink()
    file.write(b"3\n")
    file.close()
    assert path.read_text() == "0\n3\n"


def test_a_line_that_was_torn_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"1\n2 and no e")
    file = RotatingFile(path)
    file.write(b"3\n")
    file.write(b"4\n")
    file.close()
    assert path.read_text().splitlines() == ["1", "2 and no e", "3", "4"]


def test_event_files_keep_the_newest_points(tmp_path: Path) -> None:
    limit_bytes = 1000
    for start in (0, 200):
        spool = Spool(tmp_path)
        board = EventFiles(tmp_path, spool, limit_bytes)
        for step in range(start, start + 200):
            board.add("loss", 0.5, step)
        spool.close()
        assert held(tmp_path) < 2.5 * limit_bytes
    found = [point for path in tmp_path.iterdir() for point in points(path)]
    steps = sorted(step for tag, step in found if tag == "loss")
    assert steps == list(range(steps[0], 400))


def a_day(folder: RunFolder, day: int) -> None:
    """Two learners that tell four times, and a merge each time."""
    for told in range(4 * day, 4 * day + 4):
        at_s = told * 6 * HOUR_S
        for name in ("a", "b"):
            figures = StepFigures(name, told, told, at_s, 0.1, 2.0, 0.0, 0.0, (), 0.0, 0, 0)
            folder.on_figures(name, at_s, figures)
            folder.write(at_s, "v", StatusChanged(name, Status.LIVE))
        merged = structs.replace(MERGED, merged_tokens=2 * told, clock=float(told))
        folder.write(at_s, "s", merged)


def test_a_month_fits_into_what_is_allowed(tmp_path: Path) -> None:
    limit_bytes, sizes = 5_000, []
    for day in range(DAYS):
        folder = RunFolder(tmp_path, RunSettings(), limit_bytes=limit_bytes)
        a_day(folder, day)
        folder.keep(day * 24 * HOUR_S)
        folder.close()
        sizes.append(held(tmp_path))
    told_of_itself = sum((tmp_path / f"{name}.json").stat().st_size for name in SMALL)
    assert max(sizes) - told_of_itself < 4 * 2.5 * limit_bytes, "tape, metrics, log and events"
    assert max(sizes[DAYS // 2 :]) < 1.2 * max(sizes[: DAYS // 2])
    assert folder.figures.merges == 4 * DAYS


def test_curves_go_on_after_the_wall_clock_was_set_back(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.4102444800.elsewhere").touch()  # of the year 2100
    newest = []
    for step in (1, 2):
        spool = Spool(tmp_path)
        EventFiles(tmp_path, spool).add("loss", 0.5, step)
        spool.close()
        newest.append(points(max(tmp_path.iterdir(), key=lambda path: path.name)))
    assert newest == [[("loss", 1)], [("loss", 2)]]
