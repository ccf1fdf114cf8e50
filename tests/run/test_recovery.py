"""Recovery of a large state: every byte is read once, and lies in memory once."""

import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.files.disk import DiskFile, RealDisk
from islands.files.whole_files import CHUNK_BYTES
from islands.protocol.errors import JournalError
from islands.protocol.identities import Version
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.journalling import Durable, fresh
from islands.protocol.syncer.versions import Published
from islands.syncer.journal import Journal, Recovered, encode

FRAGMENTS = 6
ELEMENTS = 400_000
FRAGMENT_BYTES = 2 * 4 * ELEMENTS
STATE_BYTES = FRAGMENTS * FRAGMENT_BYTES


class CountedFile:
    def __init__(self, file: DiskFile, count: Counter[str], name: str) -> None:
        self._file = file
        self._count = count
        self._name = name

    @property
    def size(self) -> int:
        return self._file.size

    def read_into(self, buffer: memoryview) -> int:
        found = self._file.read_into(buffer)
        self._count[self._name] += found
        return found

    def close(self) -> None:
        self._file.close()


class CountingDisk(RealDisk):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.read_bytes: Counter[str] = Counter()

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        file = super().open(name, at_bytes)
        return None if file is None else CountedFile(file, self.read_bytes, name)


def arrays(number: int) -> dict[str, NDArray[np.generic]]:
    value = np.full(ELEMENTS, number, np.float32)
    return {"value": value, "momentum": -value}


class Writer:
    """A journal with every fragment in both slots, in the order of a run."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(RealDisk(folder), FRAGMENTS)
        self.durable: Durable = fresh(
            RunSettings(), fragments=FRAGMENTS, shards=4, epoch=self.journal.begin_epoch(1)
        )
        for number in range(2):
            for fragment in range(FRAGMENTS):
                self.commit(fragment, number)

    def commit(self, fragment: int, number: int) -> None:
        version = Version(1, number)
        self.durable.sequence += 1
        self.durable.published[fragment] = Published(version, "", number)
        metadata = encode(self.durable)
        self.journal.write(self.durable.sequence, metadata, fragment, version, arrays(number))


def numbers(recovered: Recovered | None) -> list[float]:
    """The versions whose values came back."""
    assert recovered is not None
    for found in recovered.fragments:
        value = np.asarray(found["value"], np.float32)
        np.testing.assert_array_equal(found["momentum"], -value)
    return [float(found["value"].item(-1)) for found in recovered.fragments]


def test_every_byte_of_the_state_is_read_once(tmp_path: Path) -> None:
    Writer(tmp_path)
    disk = CountingDisk(tmp_path)
    assert numbers(Journal(disk, FRAGMENTS).recover()) == [1.0] * FRAGMENTS
    for fragment in range(FRAGMENTS):
        newer, older = (f"fragment-{fragment:05d}.{slot}.safetensors" for slot in "ba")
        assert disk.read_bytes[newer] == (tmp_path / newer).stat().st_size
        header_bytes = (tmp_path / older).stat().st_size - FRAGMENT_BYTES
        assert disk.read_bytes[older] == header_bytes


def test_a_torn_newest_record_is_read_once_too(tmp_path: Path) -> None:
    Writer(tmp_path)
    newest = tmp_path / f"fragment-{FRAGMENTS - 1:05d}.b.safetensors"
    whole = bytearray(newest.read_bytes())
    whole[-1] ^= 1
    newest.write_bytes(whole)
    disk = CountingDisk(tmp_path)
    assert numbers(Journal(disk, FRAGMENTS).recover()) == [1.0] * (FRAGMENTS - 1) + [0.0]
    for path in sorted(tmp_path.glob("fragment-*")):
        assert disk.read_bytes[path.name] <= path.stat().st_size


def test_first_writes_after_a_recovery_read_nothing(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    disk = CountingDisk(tmp_path)
    writer.journal = Journal(disk, FRAGMENTS)
    recovered = writer.journal.take_over()
    assert recovered is not None
    writer.durable = recovered.durable
    disk.read_bytes.clear()
    for fragment in range(FRAGMENTS):
        writer.commit(fragment, 2)
    assert {name.partition(".")[0] for name in disk.read_bytes} == {"epoch"}
    assert numbers(Journal(disk, FRAGMENTS).recover()) == [2.0] * FRAGMENTS


def test_recovery_needs_no_more_memory_than_the_state(tmp_path: Path) -> None:
    Writer(tmp_path)
    journal = Journal(RealDisk(tmp_path), FRAGMENTS)
    tracemalloc.start()
    try:
        recovered = journal.recover()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert numbers(recovered) == [1.0] * FRAGMENTS
    assert STATE_BYTES <= held <= peak < STATE_BYTES + FRAGMENT_BYTES / 2


def test_a_write_copies_nothing(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    values = arrays(2)
    metadata = encode(writer.durable)
    tracemalloc.start()
    try:
        writer.journal.write(10, metadata, 0, Version(1, 2), values)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < FRAGMENT_BYTES / 8


def test_a_recovery_that_nobody_waits_for_any_more_ends(tmp_path: Path) -> None:
    assert CHUNK_BYTES < 2**24
    Writer(tmp_path)
    disk = CountingDisk(tmp_path)
    journal = Journal(disk, FRAGMENTS)
    journal.give_up()
    with pytest.raises(JournalError, match="given up"):
        journal.recover()
    assert disk.read_bytes.total() < FRAGMENT_BYTES


def test_a_journal_of_another_version_of_this_program_is_named(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.journal.write(writer.durable.sequence + 1, b'{"epoch": "another kind"}', None, None, {})
    with pytest.raises(JournalError, match="written by another version of islands"):
        Journal(RealDisk(tmp_path), FRAGMENTS).recover()
