"""The tapes of a run's folder, as its page reads them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from islands.files.tailing import AT_ONCE_BYTES
from islands.files.tape_writing import HEAD
from islands.page.tapes import GrowingTape, RunTapes
from islands.protocol.tape.entry import encode_entry
from islands.protocol.tape.member_entries import Resumed, StoodStill
from islands.protocol.tape.round_entries import Journalled
from tests.page.run_folder import BEGAN_S, LEARNERS, began, make_run, rounds, turn_over, write_tape

Row = dict[str, Any]


def read(tapes: RunTapes | GrowingTape) -> list[Row]:
    return [json.loads(line) for _, line in tapes.read()]


def kinds(rows: list[Row]) -> list[str]:
    return [row["kind"] for row in rows]


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(lines))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tape.jsonl"


def test_all_tapes_are_one_in_the_order_of_wall_time(tmp_path: Path) -> None:
    rows = read(RunTapes(make_run(tmp_path / "run", 2)))
    assert [row["t"] for row in rows] == sorted(row["t"] for row in rows)
    assert rows[0] == {
        "t": BEGAN_S + 1,
        "actor": "supervisor",
        "kind": "admitted",
        "name": "learner-0",
        "role": "learner",
        "incarnation": "1.1",
    }
    opened = [row["t"] - BEGAN_S for row in rows if row["kind"] == "opened"]
    assert opened == [10.0, 11.0]
    phases = [row["phase"] for row in rows if row["actor"] == LEARNERS[0]]
    assert phases == ["compiling", "stepping", "waiting"]


def test_what_a_process_has_in_its_own_tape_is_there_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 3)
    assert kinds(read(RunTapes(folder))).count("merged") == 3
    (folder / "processes" / "syncer" / "tape.jsonl").unlink()
    rows = read(RunTapes(folder))
    assert kinds(rows).count("merged") == 3
    assert "opened" not in kinds(rows)


def test_kinds_that_no_page_shows_are_left_out(tmp_path: Path) -> None:
    found = kinds(read(RunTapes(make_run(tmp_path / "run", 2))))
    assert not {"journalled", "tape", "process_began"} & set(found)


def test_a_tape_is_read_on_as_it_grows(path: Path) -> None:
    write_tape(path, [began("hub", 0.0)])
    tape = GrowingTape(path)
    assert read(tape) == []
    line = encode_entry(5.0, "supervisor", Resumed()) + b"\n"
    append(path, line[:20])
    assert read(tape) == []
    append(path, line[20:], line)
    assert [row["t"] for row in read(tape)] == [BEGAN_S + 5, BEGAN_S + 5]
    assert read(tape) == []


def test_a_tape_that_is_turned_over_is_followed(path: Path) -> None:
    write_tape(path, [began("hub", 0.0)])
    tape = GrowingTape(path)
    tape.read()
    append(path, encode_entry(1.0, "hub", StoodStill(1.0)) + b"\n")
    turn_over(path)
    append(path, HEAD, b"\n", encode_entry(2.0, "hub", StoodStill(2.0)), b"\n")
    found = read(tape) + read(tape)
    assert [row["gap_s"] for row in found] == [1.0, 2.0]
    assert [row["t"] for row in found] == [BEGAN_S + 1, BEGAN_S + 2]


@pytest.mark.parametrize("turned", [False, True])
def test_of_a_long_tape_the_newest_part_is_read(path: Path, *, turned: bool) -> None:
    write_tape(path, [began("syncer", 0.0), *rounds(500)])
    if turned:
        turn_over(path)
        write_tape(path, [(600.0, "syncer", Resumed())])
    tape = GrowingTape(path, newest_bytes=20_000)
    rows = read(tape)
    assert not tape.whole
    assert 20 < len(rows) < 500
    assert rows[-1]["t"] - BEGAN_S == (600.0 if turned else pytest.approx(499.3))


def test_where_no_entry_tells_the_beginning_the_files_age_does(path: Path) -> None:
    write_tape(path, rounds(3))
    os.utime(path, (2000.0, 2000.0))
    assert read(GrowingTape(path))[-1]["t"] == pytest.approx(2000.0 - 0.1)


def test_a_long_tape_is_preceded_by_the_log(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 400)
    told = {"at_s": 1.0, "actor": "supervisor", "name": "learner-0", "event": "evicted"}
    times = ("2023-11-14T22:13:21Z", "2023-11-14T23:59:00Z")
    rows = [json.dumps({**told, "timestamp": time}) for time in times]
    (folder / "run.log").write_text("\n".join([*rows, '{"half', ""]))
    found = read(RunTapes(folder, newest_bytes=20_000))
    assert found[0] == {
        "t": BEGAN_S + 1,
        "actor": "supervisor",
        "kind": "evicted",
        "name": "learner-0",
    }
    assert kinds(found).count("evicted") == 1
    assert len(found) < len(read(RunTapes(folder)))


def test_one_turn_reads_no_more_than_its_bound(path: Path) -> None:
    write_tape(path, [began("hub", 0.0)])
    tape = GrowingTape(path)
    tape.read()
    line = encode_entry(1.0, "hub", StoodStill(1.0)) + b"\n"
    count = 2 * AT_ONCE_BYTES // len(line)
    append(path, line * count)
    first, second, third = (len(tape.read()) for _ in range(3))
    assert first + second + third == count
    assert first * len(line) <= AT_ONCE_BYTES


def test_lines_that_are_damaged_are_left_out(path: Path) -> None:
    write_tape(path, [began("hub", 0.0)])
    append(path, b'{"at_s":1.0,"act\n', b"\xff\xfe\n", encode_entry(2.0, "hub", Resumed()) + b"\n")
    append(path, encode_entry(3.0, "hub", Journalled(1)) + b"\n")
    assert kinds(read(GrowingTape(path))) == ["resumed"]


def test_a_folder_without_a_tape_has_no_entries(tmp_path: Path) -> None:
    tapes = RunTapes(tmp_path)
    assert tapes.read() == []
    write_tape(tmp_path / "tape.jsonl", [began("hub", 0.0), (1.0, "hub", Resumed())])
    assert kinds(read(tapes)) == ["resumed"]
