"""The event tape: one JSON object per line, in one form, in bounded space."""

import json
from pathlib import Path

from islands.files.growing_files import Spool
from islands.files.tape_writing import HEAD, FileTape, MemoryTape
from islands.protocol.tape.entry import encode_entry
from islands.protocol.tape.kinds import read
from islands.protocol.tape.member_entries import Paused
from islands.protocol.tape.process_entries import Waits
from islands.protocol.tape.round_entries import Journal, Journalled
from islands.protocol.tape.simulation_entries import Fault


def test_an_entry_has_one_form() -> None:
    line = encode_entry(1.23456789, "syncer", Fault("cut", ["a", "b"]))
    told = '{"at_s":1.234568,"actor":"syncer","kind":"fault","fault":"cut","names":["a","b"]}'
    assert line == told.encode()


def test_a_hostile_text_stays_on_its_line() -> None:
    hostile = 'a\nb\r\u2028"}{\x00'
    line = encode_entry(0.0, "a", Waits(hostile))
    assert b"\n" not in line
    assert json.loads(line)["reason"] == hostile


def test_memory_keeps_the_bytes_of_a_file(tmp_path: Path) -> None:
    """What a simulation keeps in memory is what a run would have written."""
    memory, file = MemoryTape(), FileTape(tmp_path / "tape.jsonl", Spool(tmp_path))
    for number in range(10):
        memory.write(number / 3, "a", Journalled(number))
        file.write(number / 3, "a", Journalled(number))
    file.close()
    assert list(memory.lines) == (tmp_path / "tape.jsonl").read_bytes().splitlines()


def test_memory_keeps_the_newest() -> None:
    tape = MemoryTape(2)
    for number in range(5):
        tape.write(0.0, "a", Journalled(number))
    assert [json.loads(line)["sequence"] for line in tape.lines] == [3, 4]


def test_a_file_turns_over_and_its_space_is_bounded(tmp_path: Path) -> None:
    tape = FileTape(tmp_path / "tape.jsonl", Spool(tmp_path), limit_bytes=1000)
    for number in range(500):
        tape.write(0.0, "a", Journalled(number))
    tape.close()
    kept = sorted(tmp_path.iterdir())
    assert [path.name for path in kept] == ["tape.1.jsonl", "tape.jsonl"]
    assert sum(path.stat().st_size for path in kept) < 2200
    read_back = [read(path.read_bytes().splitlines()) for path in kept]
    numbers = [
        line.entry.sequence
        for lines in read_back
        for line in lines
        if isinstance(line.entry, Journalled)
    ]
    assert numbers == list(range(numbers[0], 500)), "no gap up to the newest"


def test_a_file_goes_on_where_it_was(tmp_path: Path) -> None:
    for number in range(3):
        tape = FileTape(tmp_path / "tape.jsonl", Spool(tmp_path), limit_bytes=200)
        tape.write(0.0, "a", Journalled(number))
        tape.close()
    kept = [path.read_bytes().splitlines() for path in sorted(tmp_path.iterdir())]
    assert [[line == HEAD for line in lines] for lines in kept] == [
        [True, False] * 2,
        [True, False],
    ]


def test_a_full_disk_costs_entries_and_not_the_process() -> None:
    told: list[str] = []
    spool = Spool(Path("/dev"), told.append)
    tape = FileTape(Path("/dev/full"), spool)
    tape.write(0.0, "a", Journalled(1))
    tape.write(5.0, "a", Journalled(2))
    tape.close()
    assert spool.dropped == 2
    assert told[-1] == "missing in /dev, which cannot be written: 2 entries"


def test_a_field_that_an_entry_does_not_have_is_not_on_its_line() -> None:
    lines = [encode_entry(0.0, "a", entry) for entry in (Paused(), Journal(1, None, "1.0"))]
    assert [json.loads(line) for line in lines] == [
        {"at_s": 0.0, "actor": "a", "kind": "paused"},
        {
            "at_s": 0.0,
            "actor": "a",
            "kind": "journal",
            "sequence": 1,
            "fragment": None,
            "version": "1.0",
        },
    ]
