"""The simulated disk forgets what was not durable, and only that."""

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
    """A disk with OLD, which a worker or its host replaced by NEW."""
    disk = SimulatedDisk(random.Random(seed))
    disk.write("file", [OLD])
    if working:
        disk.begin_work()
    disk.write("file", [NEW[:5], memoryview(NEW)[5:]])
    if settled:
        disk.settle()
    return disk


@pytest.mark.parametrize(("working", "settled"), [(False, False), (True, True)])
def test_a_durable_write_survives_a_crash(working: bool, settled: bool) -> None:  # noqa: FBT001
    for seed in range(20):
        disk = disk_with(seed, working=working, settled=settled)
        assert not disk.crash()
        assert content(disk) == NEW


def test_a_crash_in_a_write_leaves_the_old_file_or_the_new_one() -> None:
    left = set[tuple[bytes | None, bool]]()
    for seed in range(20):
        disk = disk_with(seed, working=True, settled=False)
        assert content(disk) == NEW
        lost = disk.crash()
        left.add((content(disk), lost))
    assert left == {(OLD, True), (NEW, False)}


def test_a_crash_in_the_first_write_of_a_file_may_leave_none() -> None:
    left = set[bytes | None]()
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed))
        disk.begin_work()
        disk.write("file", [NEW])
        disk.crash()
        left.add(content(disk))
    assert left == {None, NEW}


def test_missing_file_is_none() -> None:
    disk = SimulatedDisk(random.Random(1))
    assert content(disk) is None


def test_a_full_disk_has_no_room_for_a_new_file_and_keeps_the_old_one() -> None:
    disk = SimulatedDisk(random.Random(1))
    disk.write("file", [OLD])
    disk.spoil(full=True)
    with pytest.raises(DiskError, match="file cannot be written"):
        disk.write("file", [NEW])
    assert content(disk) == OLD
    assert not disk.crash()
    assert content(disk) == OLD


def test_failing_disk_refuses_everything_until_it_is_mended() -> None:
    disk = SimulatedDisk(random.Random(0))
    disk.write("file", [OLD])
    disk.spoil(failing=True)
    with pytest.raises(DiskError, match="file: input/output error"):
        disk.write("file", [NEW])
    with pytest.raises(DiskError, match="file: input/output error"):
        content(disk)
    disk.spoil()
    assert content(disk) == OLD


def test_another_host_sees_what_was_written() -> None:
    one = SimulatedDisk(random.Random(0))
    other = one.mounted(random.Random(1))
    for writer in (one, other, one):
        writer.begin_work()
        for new in (NEW, OLD):
            writer.write("file", [new])
            assert content(one) == content(other) == new
        writer.settle()


def test_a_host_that_mounts_a_disk_sees_what_is_being_written() -> None:
    disk = SimulatedDisk(random.Random(0))
    disk.begin_work()
    disk.write("file", [NEW])
    assert content(disk.mounted(random.Random(1))) == NEW


def test_a_flipped_bit_spares_the_newest_record() -> None:
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed))
        slots = Slots(disk)
        slots.write("epoch", 1)
        assert disk.flip() is None
        slots.write("epoch", 2)
        assert disk.flip() in ("epoch.a.safetensors", "epoch.b.safetensors")
        assert [record.sequence for record in slots.held("epoch")] == [2]
