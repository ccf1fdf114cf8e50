"""A process that can be struck does what it is told, and its tape has all it did."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from islands.files.growing_files import RotatingFile
from islands.lab.faults.fleet import Fleet, HubSettings, MergedBy, Reader, Stepped, Watched, encode
from islands.lab.faults.victim import (
    EXIT_CODE,
    WrittenThrough,
    open_orders,
    write_through,
)
from islands.protocol.errors import UserError
from islands.run.hosting import process_runtime
from islands.run.records import run_folder
from islands.settings.run_spec import RunSpec

ROOT = Path(__file__).parents[3]
# Reads a line in its main thread, as a loop waits in one; says how long another thread stood still.
PROGRAM = """
import signal, sys, threading, time
from pathlib import Path
from islands.lab.faults.victim import listen

listen(Path(sys.argv[1]) / "orders" / "a")
most_s = 0.0

def watch():
    global most_s
    last_s = time.monotonic()
    while True:
        time.sleep(0.005)
        most_s, last_s = max(most_s, time.monotonic() - last_s), time.monotonic()

threading.Thread(target=watch, daemon=True).start()
print("ready", flush=True)
begun_s = time.monotonic()
while time.monotonic() < begun_s + float(sys.argv[2]):
    last_s = time.monotonic()
    time.sleep(0.005)
print(most_s > 0.3, flush=True)
"""


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    """A process that obeys orders, and lives so long."""
    command = [sys.executable, "-c", PROGRAM, str(folder), f"{seconds}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, text=True, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("order", "code"),
    [("segfault", -signal.SIGSEGV), ("exit", EXIT_CODE), ("crash", 1)],
)
def test_it_ends_in_the_way_that_it_is_told(tmp_path: Path, order: str, code: int) -> None:
    with start(tmp_path, 30.0) as process:
        assert Fleet(tmp_path, HubSettings(RunSpec(), 1)).order("a", f"nonsense\n{order}")
        assert process.wait(20.0) == code


def test_orders_come_through_a_pipe_of_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    for _ in range(2):
        os.close(open_orders(folder / "a"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "file").write_bytes(b"")
    (folder / "file").chmod(0o600)
    (folder / "link").symlink_to("a")
    os.mkfifo(folder / "wide")
    (folder / "wide").chmod(0o622)
    for name in ("file", "link", "wide"):
        with pytest.raises(UserError, match=f"{name}"):
            open_orders(folder / name)
    folder.chmod(0o777)
    with pytest.raises(UserError, match="no pipe in a folder that this user alone may enter"):
        open_orders(folder / "a")


def test_nobody_is_told_who_does_not_listen(tmp_path: Path) -> None:
    assert not Fleet(tmp_path, HubSettings(RunSpec(), 1)).order("a", "exit")


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
    whole = b"".join(encode(row) for row in rows)
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
