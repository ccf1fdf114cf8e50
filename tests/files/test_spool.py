"""What is measured goes to files by a thread: a full or dead disk costs entries, nobody's time."""

import errno
import threading
from pathlib import Path

import pytest

from islands.files.growing_files import Spool
from islands.files.whole_files import replace_file

ROOM_BYTES = 2**20


class Shelf:
    """A growing file in memory, on a disk that can be full, or not answer.

    It keeps the contract of a growing file: all of what is given is in it, or nothing.
    """

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.tries = 0
        self.full = False
        self.tried = threading.Event()
        self.answers = threading.Event()
        self.answers.set()

    @property
    def room_bytes(self) -> int:
        return ROOM_BYTES

    def write(self, data: bytes) -> None:
        self.tries += 1
        self.tried.set()
        self.answers.wait()
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.taken += data.splitlines(keepends=True)

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def entries(first: int, last: int) -> list[bytes]:
    return [b"%02d\n" % number for number in range(first, last)]


def test_entries_arrive_in_order_and_whole(shelf: Shelf) -> None:
    spool = Spool(Path("run"))
    inlet = spool.inlet(shelf)
    for entry in entries(10, 99):
        assert inlet.add(entry)
    spool.close()
    assert shelf.taken == entries(10, 99)
    assert shelf.tries < 89, "many at once"
    assert spool.dropped == 0


def test_a_disk_that_does_not_answer_holds_up_nobody(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What finds no room is dropped counted and reported; `add` and `close` return."""
    monkeypatch.setattr("islands.files.growing_files.CLOSE_S", 0.0)
    reports: list[str] = []
    spool = Spool(Path("run"), reports.append, kept_bytes=30)
    inlet = spool.inlet(shelf)
    shelf.answers.clear()
    taken = [inlet.add(entry) for entry in entries(10, 50)]
    assert taken == [True] * 10 + [False] * 30
    assert spool.dropped == 30
    assert "run cannot be written: the disk does not answer; 30 entries are lost" in spool.trouble
    spool.close()
    shelf.answers.set()
    assert reports == ["missing in run, which cannot be written: 40 entries"]


def test_what_waited_for_a_full_disk_is_written_once_there_is_room(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("islands.files.growing_files.RETRY_S", 0.0)
    heard = {word: threading.Event() for word in ("cannot", "again")}
    reports: list[str] = []

    def tell(sentence: str) -> None:
        reports.append(sentence)
        for word, event in heard.items():
            if word in sentence:
                event.set()

    spool = Spool(Path("run"), tell, kept_bytes=30)
    inlet, shelf.full = spool.inlet(shelf), True
    inlet.add(b"10\n")
    heard["cannot"].wait()
    for entry in entries(11, 25):
        inlet.add(entry)
    assert spool.trouble.startswith("run cannot be written: No space left on device; 5 entries")
    shelf.full = False
    heard["again"].wait()
    assert spool.trouble == ""
    spool.close()
    assert shelf.taken == entries(10, 20)
    assert reports[:2] == [
        "run cannot be written: No space left on device; the run goes on",
        "run can be written again; 5 entries are lost",
    ]


def test_a_file_that_fails_holds_up_no_other(shelf: Shelf) -> None:
    spool = Spool(Path("run"))
    broken = Shelf()
    broken.full = True
    spool.inlet(broken).add(b"1\n")
    spool.inlet(shelf).add(b"2\n")
    spool.close()
    assert shelf.taken == [b"2\n"]
    assert spool.dropped == 1


def test_an_entry_longer_than_a_write_is_written_whole(shelf: Shelf) -> None:
    spool = Spool(Path("run"))
    inlet = spool.inlet(shelf)
    long = b"x" * ROOM_BYTES + b"\n"
    inlet.add(long)
    inlet.add(b"1\n")
    spool.close()
    assert shelf.taken == [long, b"1\n"]


def test_entries_that_belong_together_find_room_together(shelf: Shelf) -> None:
    spool = Spool(Path("run"), kept_bytes=10)
    inlet = spool.inlet(shelf)
    shelf.answers.clear()
    assert inlet.add(b"12\n")
    assert not inlet.add(b"345\n", memoryview(b"67890\n"))
    assert inlet.add(b"34\n", memoryview(b"56\n"))
    shelf.answers.set()
    spool.close()
    assert b"".join(shelf.taken) == b"12\n34\n56\n"
    assert inlet.dropped == 1


def test_a_content_replaces_the_one_before_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(9):
        spool.replace(tmp_path / "figures.json", b"%d" % number)
    spool.close()
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
    assert (tmp_path / "figures.json").read_bytes() == b"8"


def test_a_content_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    replace_file(path, b"old")
    (tmp_path / ".figures.json.new").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(path, b"new")
    reports: list[str] = []
    spool = Spool(tmp_path, reports.append)
    spool.replace(path, b"newer")
    spool.close()
    assert path.read_bytes() == b"old"
    assert reports[-1] == (
        f"missing in {tmp_path}, which cannot be written: the newest figures.json"
    )
