"""Files that arrive in a folder: each is a shard, is read once, and is resumed at its position."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.arrivals import Arrivals
from islands.protocol.errors import DataError, UserError
from islands.protocol.identities import Lease
from islands.tasks.data.batch_source import BatchSource, Taken
from islands.tasks.data.shards import ShardKey

SHARDS = 2


def letters(path: Path, position: int) -> Iterator[tuple[str, int]]:
    for place, letter in enumerate(path.read_text()[position:], position + 1):
        yield letter, place


@pytest.fixture
def arrivals(tmp_path: Path) -> Arrivals[str]:
    """A folder with one file, and one that is not whole yet."""
    (tmp_path / "2026-01.txt").write_text("abc")
    (tmp_path / ".2026-02.txt").write_text("d")
    return Arrivals(tmp_path, letters, SHARDS)


def test_files_are_shards_in_the_order_of_their_names(
    arrivals: Arrivals[str], tmp_path: Path
) -> None:
    for number in range(2, 6):
        (tmp_path / f"2026-{number:02}.txt").write_text(str(number))
    keys = [ShardKey(0, 0), ShardKey(0, 1), ShardKey(1, 0), ShardKey(1, 1), ShardKey(2, 0)]
    found = ["".join(filter(None, (x for x, _ in arrivals.batches(k, 0)))) for k in keys]
    assert found == ["abc", "2", "3", "4", "5"]
    assert arrivals.find(ShardKey(2, 1)) is None


def test_a_file_is_resumed_at_its_position(arrivals: Arrivals[str]) -> None:
    assert list(arrivals.batches(ShardKey(0, 0), 1)) == [("b", 2), ("c", 3)]
    assert list(arrivals.batches(ShardKey(0, 0), 3)) == []


def test_a_reader_waits_for_a_file_and_reads_it_when_it_has_arrived(
    arrivals: Arrivals[str], tmp_path: Path
) -> None:
    source = BatchSource(arrivals.batches)
    source.follow((Lease(0, 1, 0),))
    assert source.take() is None
    assert source.take() is None
    assert source.expecting
    (tmp_path / ".2026-02.txt").rename(tmp_path / "2026-02.txt")
    assert source.take() == Taken(ShardKey(0, 1), "d", 1)
    assert source.take() == Taken(ShardKey(0, 1), None, 1)
    assert not source.expecting


@pytest.mark.parametrize("change", ["earlier", "gone"])
def test_a_changed_order_is_refused(arrivals: Arrivals[str], tmp_path: Path, change: str) -> None:
    """It would give the files that follow other numbers, and records would be lost."""
    (tmp_path / "2026-03.txt").write_text("e")
    assert arrivals.find(ShardKey(0, 1)) == tmp_path / "2026-03.txt"
    if change == "earlier":
        (tmp_path / "2025-12.txt").write_text("late")
    else:
        (tmp_path / "2026-01.txt").unlink()
    with pytest.raises(DataError, match="let names grow, and keep files that were read"):
        arrivals.find(ShardKey(1, 0))


def test_the_first_file_tells_a_restart_that_numbers_have_changed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file has arrived in .*; put one there to begin with"):
        Arrivals(tmp_path, letters, SHARDS).first  # noqa: B018  (it is what raises)
    for name in ("b", "c"):
        (tmp_path / name).write_text(name)
        assert Arrivals(tmp_path, letters, SHARDS).first == "b"
    (tmp_path / "b").unlink()
    assert Arrivals(tmp_path, letters, SHARDS).first == "c"


def test_a_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none cannot be read"):
        Arrivals(tmp_path / "none", letters, SHARDS).find(ShardKey(0, 0))
