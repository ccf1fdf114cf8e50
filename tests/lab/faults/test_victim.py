"""A process that can be injected hangs when it is told to, and its tape has all it did."""

import signal
from pathlib import Path

import msgspec
import pytest

from islands.files.growing_files import RotatingFile
from islands.lab.faults.fleet import Fleet, HubSettings, MergedBy, Reader, Stepped, Watched
from islands.lab.faults.victim import FOREVER_S, HANG, WrittenThrough, hang, write_through
from islands.lab.toys.toy_workload import Accelerator
from islands.run.hosting import process_runtime
from islands.run.records import run_folder
from islands.settings.run_spec import RunSpec


def test_once_it_is_told_to_the_next_step_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accelerator, "step", Accelerator.step)
    before = signal.signal(HANG, hang)
    try:
        device = Accelerator(0.001, 256)
        device.step(None, 0.1).loss()
        signal.raise_signal(HANG)
        begun_s = device.device.free_s
        device.step(None, 0.1)
        assert device.device.free_s - begun_s > FOREVER_S / 2
    finally:
        signal.signal(HANG, before)


def test_a_tape_that_is_written_through_has_every_entry_at_once(tmp_path: Path) -> None:
    spool = WrittenThrough(tmp_path)
    inlet = spool.inlet(RotatingFile(tmp_path / "tape.jsonl"))
    assert inlet.add(b"one\n", b"two\n")
    assert (tmp_path / "tape.jsonl").read_bytes() == b"one\ntwo\n"
    spool.close()


def test_a_spool_that_goes_by_another_name_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise tapes would silently not be written through; nothing is replaced then."""
    spool = vars(run_folder)["Spool"]
    monkeypatch.delattr(process_runtime, "Spool")
    with pytest.raises(AssertionError, match="process_runtime has no Spool to replace"):
        write_through()
    assert vars(run_folder)["Spool"] is spool


def test_rows_are_read_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "watched.jsonl"
    reader = Reader(path)
    assert reader.read() == []
    rows: list[Watched] = [
        MergedBy(1.0, ("a", "b")),
        MergedBy(2.0, ("a",)),
        Stepped(3.0, "a", "p", 7, ((-100, 2),), 0.1),
    ]
    whole = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    path.write_bytes(whole[:-5])
    assert reader.read() == rows[:2]
    path.write_bytes(whole)
    assert reader.read() == rows[2:]
    assert reader.rows == rows[2:]
    fleet = Fleet(tmp_path, HubSettings(RunSpec(), 1))
    fleet.watched = reader
    assert (reader.merged_s, reader.reported_s) == ({"a": 2.0, "b": 1.0}, {"a": 3.0})
    assert fleet.merged_since(1.5, ["a"])
    assert not fleet.merged_since(1.5, ["a", "b"])
    assert fleet.reported_since(2.5, ["a"])
    assert not fleet.reported_since(2.5, ["a", "b"])
