"""The simulated disk forgets what was not synced, and only that."""

import random

import pytest

from islands.files.slots import Slots
from islands.lab.world.disk import SimulatedDisk
from islands.protocol.errors import DiskError

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
    for seed in range(20):
        disk = disk_with(seed, working=working, settled=settled)
        assert disk.crash() == []
        assert content(disk) == NEW


def test_unsynced_write_is_kept_lost_or_torn() -> None:
    kept = lost = torn = 0
    for seed in range(60):
        disk = disk_with(seed, working=True, settled=False)
        assert content(disk) == NEW
        faults = disk.crash()
        left = content(disk)
        assert left is not None
        whole = [NEW[:cut] + OLD[cut:] for cut in range(len(NEW) + 1)]
        assert left in whole
        kept += left == NEW
        lost += "lost write" in faults
        torn += "torn write" in faults
    assert kept > 0
    assert lost > 0
    assert torn > 0
    assert kept + lost + torn == 60


def test_missing_file_is_none() -> None:
    disk = SimulatedDisk(random.Random(1))
    assert content(disk) is None


def test_full_disk_refuses_and_loses_the_file() -> None:
    disk = SimulatedDisk(random.Random(1))
    disk.write("file", [OLD])
    disk.spoil(full=True)
    with pytest.raises(DiskError, match="file cannot be written"):
        disk.write("file", [NEW])
    left = content(disk)
    assert left is not None
    assert NEW.startswith(left)


def test_failing_disk_refuses_everything_until_it_is_mended() -> None:
    disk = SimulatedDisk(random.Random(0))
    disk.write("file", [OLD])
    disk.spoil(failing=True)
    with pytest.raises(DiskError, match="file: input/output error"):
        disk.write("file", [NEW])
    with pytest.raises(DiskError, match="file: input/output error"):
        disk.sync("file")
    with pytest.raises(DiskError, match="file: input/output error"):
        content(disk)
    disk.spoil()
    assert content(disk) == OLD


def test_another_host_sees_what_was_synced() -> None:
    one = SimulatedDisk(random.Random(0))
    other = one.mounted(random.Random(1))
    for writer in (one, other, one):
        writer.begin_work()
        writer.write("file", [NEW])
        assert content(one if writer is other else other) != NEW
        writer.sync("file")
        writer.settle()
        assert content(one) == content(other) == NEW
        writer.write("file", [OLD])
        writer.sync("file")
        assert content(one) == content(other) == OLD


def test_a_host_that_mounts_a_disk_sees_what_is_being_synced() -> None:
    disk = SimulatedDisk(random.Random(0))
    disk.begin_work()
    disk.write("file", [NEW])
    disk.sync("file")
    assert content(disk.mounted(random.Random(1))) == NEW


def test_a_flipped_bit_spares_the_newest_record() -> None:
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed))
        slots = Slots(disk)
        slots.write("epoch", 1)
        assert disk.flip() is None
        slots.write("epoch", 2)
        assert disk.flip() in ("epoch.a", "epoch.b")
        assert [record.sequence for record in slots.held("epoch")] == [2]
