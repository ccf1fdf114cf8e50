"""The simulated disk forgets what was not synced, and only that."""

import random

import pytest

from islands.errors import DiskError
from islands.simulation.disk import SimulatedDisk

OLD, NEW = b"old content", b"newer content"


def content(disk: SimulatedDisk) -> bytes | None:
    """All of the file; None if there is none."""
    file = disk.open("file")
    if file is None:
        return None
    whole = bytearray(file.size)
    assert file.read_into(memoryview(whole)) == file.size
    return bytes(whole)


def disk_with(seed: int, *, working: bool, settled: bool) -> SimulatedDisk:
    """A disk with OLD, over which NEW was written and synced by a worker or by its host."""
    disk = SimulatedDisk(random.Random(seed))
    disk.write("file", [OLD])
    disk.sync("file")
    if working:
        disk.begin_work()
    disk.write("file", [NEW[:5], memoryview(NEW)[5:]])
    disk.sync("file")
    if settled:
        disk.settle()
    return disk


@pytest.mark.parametrize(("working", "settled"), [(False, False), (True, True)])
def test_synced_write_survives_a_crash(working: bool, settled: bool) -> None:  # noqa: FBT001
    """A sync of the host is complete when it returns, one of a worker when its work is."""
    for seed in range(20):
        disk = disk_with(seed, working=working, settled=settled)
        disk.crash()
        assert content(disk) == NEW
        assert (disk.lost, disk.torn) == (0, 0)


def test_unsynced_write_is_kept_lost_or_torn() -> None:
    """Before its sync is complete a write may be kept, lost, or be new in front and old behind."""
    kept = lost = torn = 0
    for seed in range(60):
        disk = disk_with(seed, working=True, settled=False)
        assert content(disk) == NEW
        disk.crash()
        left = content(disk)
        assert left is not None
        whole = [NEW[:cut] + OLD[cut:] for cut in range(len(NEW) + 1)]
        assert left in whole
        kept += left == NEW
        lost += disk.lost
        torn += disk.torn
    assert kept > 0
    assert lost > 0
    assert torn > 0
    assert kept + lost + torn == 60


def test_missing_file_is_none() -> None:
    """What was never written is not there; what was written and lost is not there either."""
    disk = SimulatedDisk(random.Random(1))
    assert content(disk) is None


def test_full_disk_refuses() -> None:
    """Nothing more can be written to a full disk, and the error says which file."""
    disk = SimulatedDisk(random.Random(0))
    disk.full = True
    with pytest.raises(DiskError, match="file cannot be written"):
        disk.write("file", [NEW])
