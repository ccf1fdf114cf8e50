"""A sink reads what was written, once, across restarts and files that are turned over."""

from pathlib import Path

import msgspec
import pytest

from islands.files.growing_files import older
from islands.files.run_files import METRICS_FILE
from islands.files.tailing import AT_ONCE_BYTES, Tail
from islands.sinks.sink import points_of, rows_in


class Growing:
    """A file of rows, and those that were read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / METRICS_FILE
        self.written: list[int] = []
        self.seen: list[object] = []
        self.begin()

    def begin(self) -> None:
        self.tail = Tail(self.path, self.folder / "kept")

    def write(self, count: int = 3) -> None:
        with self.path.open("ab") as file:
            for _ in range(count):
                self.written.append(len(self.written))
                file.write(msgspec.json.encode({"at_s": 1.0, "row": self.written[-1]}) + b"\n")

    def turn_over(self) -> None:
        self.path.replace(older(self.path))
        self.path.touch()

    def read(self) -> None:
        while lines := self.tail.read():
            self.seen += [row["row"] for row in rows_in(lines)]
            self.tail.keep()


def test_rows_are_read_once_whatever_happens_to_the_file(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.write()
    growing.turn_over()
    growing.write()
    growing.read()
    growing.write()
    growing.turn_over()
    growing.write()
    growing.read()
    growing.begin()
    growing.read()
    growing.write()
    growing.turn_over()
    growing.write()
    growing.begin()
    growing.read()
    assert growing.seen == growing.written


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.write(1)
    with growing.path.open("ab") as file:
        file.write(b'{"at_s":2.0,"ro')
    growing.read()
    assert growing.seen == [0]
    with growing.path.open("ab") as file:
        file.write(b'w":1}\n{"at_s"\n')
    growing.read()
    assert growing.seen == [0, 1]


def test_a_line_of_any_length_is_read(tmp_path: Path) -> None:
    """It would silence a sink for ever if it had to be read at once."""
    growing = Growing(tmp_path)
    with growing.path.open("ab") as file:
        file.write(msgspec.json.encode({"at_s": 1.0, "row": "x" * (3 * AT_ONCE_BYTES)}) + b"\n")
    growing.written.append(-1)
    growing.write(1)
    growing.read()
    assert [str(row)[:2] for row in growing.seen] == ["xx", "1"]


def test_lines_that_are_damaged_hide_none_behind_them(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    with growing.path.open("ab") as file:
        file.write(b"x\n" * AT_ONCE_BYTES)
    growing.write(1)
    growing.read()
    assert growing.seen == growing.written


def test_a_file_that_is_being_turned_over_is_read_on(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.write(1)
    growing.read()
    growing.write(1)
    growing.path.replace(older(growing.path))
    growing.read()
    growing.path.touch()
    growing.write(1)
    growing.read()
    assert growing.seen == growing.written


@pytest.mark.parametrize(
    "row",
    [{"kind": "merge", "at_s": 1.0, "merges": 3}, {"kind": "new", "tokens": 3}, {"kind": "event"}],
)
def test_a_row_without_a_place_has_no_points(row: dict[str, object]) -> None:
    assert points_of(row) is None
