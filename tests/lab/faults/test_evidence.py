"""Tapes of real processes become one history, in which what faults ended did not fail."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from islands.files.tape_writing import HEAD
from islands.lab.faults.evidence import final_of, history_of, limits_of, lines_of
from islands.lab.faults.fault import Injected
from islands.lab.faults.schedule import injections_of
from islands.lab.settings.chaos import ChaosOptions
from islands.lab.toys.toy import ToyTask
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.tape.entry import Entry, Line, encode_entry
from islands.protocol.tape.kinds import read
from islands.protocol.tape.member_entries import Paused, ProcessEnded, ProcessStarted, Resumed
from islands.protocol.tape.process_entries import ProcessBegan
from islands.protocol.tape.round_entries import Committed, Finished, Journalled
from islands.protocol.tape.simulation_entries import Fault, Final, Healed, ProcessKilled
from islands.run.records.model_files import write_model
from islands.settings.run_spec import RunPlan, RunSpec
from messaging.codec.tensors import as_buffer, digest
from tests.protocol.tape.samples import MERGED

HEALED = (20.0, Healed(0.0, 1.0))


def write(path: Path, *entries: tuple[float, str, Entry] | None) -> None:
    """A tape with these entries; None begins it, as each start of a process does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [HEAD if each is None else encode_entry(*each) for each in entries]
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def test_tapes_are_put_in_the_order_of_one_clock(tmp_path: Path) -> None:
    write(
        tmp_path / "tape.jsonl",
        *(None, (0.0, "hub", ProcessBegan(1, 0.0, 100.0))),
        *((1.0, "supervisor", Paused()), (1.0, "syncer", Journalled(1))),
        *(None, (0.0, "hub", ProcessBegan(2, 0.0, 200.0)), (1.0, "supervisor", Resumed())),
    )
    write(
        tmp_path / "processes" / "syncer" / "tape.jsonl",
        *(None, (0.0, "syncer", ProcessBegan(3, 0.0, 110.0)), (5.0, "syncer", Journalled(1))),
    )
    write(
        tmp_path / "processes" / "a" / "tape.jsonl",
        *(None, (0.0, "a", ProcessBegan(4, 0.0, 115.0)), (0.0, "a", Committed(0, "1.1", "x"))),
    )
    found = lines_of(tmp_path, ["a", "never-started"])
    assert [(line.at_s, line.actor, line.entry.kind) for line in found] == [
        (100.0, "hub", "process_began"),
        (101.0, "supervisor", "paused"),
        (110.0, "syncer", "process_started"),
        (110.0, "syncer", "process_began"),
        (115.0, "syncer", "journalled"),
        (115.0, "a", "process_started"),
        (115.0, "a", "process_began"),
        (115.0, "a", "committed"),
        (200.0, "hub", "process_began"),
        (201.0, "supervisor", "resumed"),
    ]


def entries_of(*lines: Line, **fault: object) -> list[Entry]:
    """The entries of a history with one fault, at 10 s."""
    injection = injections_of(ChaosOptions(faults={"one": {"who": "learner-1", **fault}}))[0]
    blow = Injected(injection, 10.0, 10.0, 15.0)
    return [line.entry for line in read(history_of(lines, [blow], HEALED))][1:]


def test_a_process_that_a_fault_ended_was_killed() -> None:
    told = Line(10.1, "hub", ProcessEnded("learner-1", error="killed by SIGKILL"))
    assert entries_of(told, fault="kill") == [
        Fault("kill", ["learner-1"]),
        ProcessKilled("learner-1", silent=False, mailbox_most=0),
        HEALED[1],
    ]
    later = Line(16.0, "hub", told.entry)
    assert later.entry in entries_of(later, fault="kill")
    assert told.entry in entries_of(told, fault="freeze")


def test_a_silent_victim_stood_still_until_its_fault_ended() -> None:
    injection = injections_of(
        ChaosOptions(faults={"one": {"who": "learner-1", "fault": "freeze"}})
    )[0]
    blow = Injected(injection, 10.0, 13.0, 15.0)
    told = [(line.at_s, line.entry) for line in read(history_of([], [blow], HEALED))][1:]
    assert told[:2] == [
        (10.0, Fault("freeze", ["learner-1"])),
        (13.0, Fault("thaw", ["learner-1"])),
    ]
    missed = replace(blow, missed="nobody of that name runs")
    assert [line.entry for line in read(history_of([], [missed], HEALED))][1:] == [HEALED[1]]


def test_a_busy_host_may_be_late_with_a_timer() -> None:
    settings = RunSettings(timing=Timing(patience=0.2))
    plan = RunPlan(ToyTask(2).layout, 1)
    limits = limits_of(RunSpec(settings=settings), plan, ["a"])
    assert limits.moments_wait_s == pytest.approx(0.4 + 1.0)


def test_a_victim_that_fails_once_it_is_restarted_has_failed() -> None:
    told = Line(10.1, "hub", ProcessEnded("learner-1", error="killed by SIGKILL"))
    again = Line(12.0, "hub", ProcessEnded("learner-1", error="exit code 1: InvariantError"))
    found = entries_of(told, again, fault="kill")
    assert [entry for entry in found if isinstance(entry, ProcessEnded)] == [again.entry]


def test_of_whom_a_second_hub_took_over_nobody_knows_the_exit_code() -> None:
    unknown = ProcessEnded("learner-0", error="exit code unknown: it ends")
    over = Line(17.0, "supervisor", Finished("stopped"))
    found = entries_of(over, Line(18.0, "hub", unknown), fault="freeze")
    assert ProcessEnded("learner-0", error="") in found
    assert unknown in entries_of(Line(9.0, "hub", unknown), over, fault="freeze")
    assert not any(isinstance(entry, ProcessStarted) for entry in found)


def merge_of(fragment: int, value: NDArray[np.float32]) -> Line:
    entry = msgspec.structs.replace(
        MERGED, fragment=fragment, version="1.3", digest=digest(as_buffer(value))
    )
    return Line(5.0 + fragment, "syncer", entry)


def test_the_file_at_the_end_is_held_against_the_last_merges(tmp_path: Path) -> None:
    layout = ToyTask(2).layout
    values = [np.full(fragment.size, 1.5, np.float32) for fragment in layout.fragments]
    lines = [merge_of(index, value) for index, value in enumerate(values)]
    assert final_of(tmp_path, layout, lines) is None
    other = [value + 1 for value in values]
    write_model(tmp_path / "final.safetensors", layout, other, {})
    final = final_of(tmp_path, layout, lines)
    assert final is not None
    digests = [digest(as_buffer(value)) for value in other]
    assert (final.at_s, final.entry) == (6.0, Final(["1.3", "1.3"], digests, finite=True))
    part = final_of(tmp_path, layout, lines, whole=False)
    assert part is not None
    digests = [digest(as_buffer(value)) for value in values]
    assert part.entry == Final(["1.3", "1.3"], digests, finite=True)
    assert final_of(tmp_path, layout, lines[:1]) is None
