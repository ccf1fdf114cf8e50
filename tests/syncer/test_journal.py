"""The journal: what was committed survives torn, flipped and truncated records, and old writers."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from blake3 import blake3
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file

from islands.actors.epochs import COPY
from islands.files.disk import DiskFile, RealDisk
from islands.files.slots import FORMAT, Slots
from islands.files.tensor_files import HEADER_BYTES_MAX
from islands.protocol.errors import DamagedError, DiskError, FencedError, JournalError
from islands.protocol.identities import Fate, Incarnation, LearnerName, Version
from islands.protocol.messages.training import FragmentProgress, Merged
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.journalling import APART, Durable, fresh
from islands.protocol.syncer.ledger import Account, Book, Claim
from islands.protocol.syncer.versions import Published
from islands.syncer.journal import Journal, Recovered, encode
from messaging.codec.tensors import as_buffer, digest

FRAGMENTS = 2
OWN = FORMAT.encode()


def value(number: int) -> NDArray[np.float32]:
    return np.arange(5, dtype=np.float32) + number


class Writer:
    def __init__(self, folder: Path, disk: RealDisk | None = None) -> None:
        self.folder = folder
        self.journal = Journal(disk or RealDisk(folder), FRAGMENTS)
        self.recovered = self.journal.recover()
        least = 1 if self.recovered is None else self.recovered.durable.epoch + 1
        epoch = self.journal.begin_epoch(least)
        self.durable: Durable = (
            fresh(RunSettings(), fragments=FRAGMENTS, shards=4, epoch=epoch)
            if self.recovered is None
            else self.recovered.durable
        )
        self.durable.epoch = epoch

    def commit(self, fragment: int, number: int) -> Path:
        """Write one version; returns the file that it went to."""
        before = contents(self.folder)
        version = Version(self.durable.epoch, number)
        self.durable.sequence += 1
        self.durable.merges += 1
        told = f"digest {number}"
        self.durable.published[fragment] = Published(version, told, number, 100 * number)
        arrays = {"value": value(number), "momentum": -value(number), "count": np.int32(number)}
        self.journal.write(
            self.durable.sequence,
            encode(self.durable),
            fragment,
            version,
            {name: np.asarray(array) for name, array in arrays.items()},
        )
        after = contents(self.folder)
        changed = [path for path, content in after.items() if before.get(path) != content]
        return max(changed, key=lambda path: len(after[path]))  # the first one voids its twin

    def note(self) -> None:
        self.durable.sequence += 1
        self.journal.write(self.durable.sequence, encode(self.durable), None, None, {})


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.iterdir())}


def recover(folder: Path) -> Recovered | None:
    return Journal(RealDisk(folder), FRAGMENTS).recover()


def numbers(recovered: Recovered | None) -> list[int]:
    assert recovered is not None
    found = []
    for published, arrays in zip(recovered.durable.published, recovered.fragments, strict=True):
        assert published is not None
        number = published.version.number
        np.testing.assert_array_equal(arrays["value"], value(number))
        np.testing.assert_array_equal(arrays["momentum"], -value(number))
        assert arrays["count"].shape == ()
        assert arrays["count"] == number
        found.append(number)
    return found


def test_an_empty_folder_holds_no_run(tmp_path: Path) -> None:
    assert recover(tmp_path) is None
    writer = Writer(tmp_path)
    assert recover(tmp_path) is None
    writer.commit(0, 0)
    assert recover(tmp_path) is None
    writer.commit(1, 0)
    assert numbers(recover(tmp_path)) == [0, 0]


def test_a_run_that_was_half_begun_is_overwritten(tmp_path: Path) -> None:
    first = Writer(tmp_path)
    first.commit(0, 0)
    for _ in range(5):
        first.note()
    second = Writer(tmp_path)
    assert second.recovered is None
    second.durable.sequence = second.journal.sequence
    second.commit(0, 0)
    second.commit(1, 0)
    recovered = recover(tmp_path)
    assert numbers(recovered) == [0, 0]
    assert recovered is not None
    assert recovered.durable.epoch == second.durable.epoch


def test_what_was_written_last_is_found(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for fragment, number in [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (0, 3), (1, 2)]:
        writer.commit(fragment, number)
    writer.durable.stopping = "budget spent"
    writer.note()
    recovered = recover(tmp_path)
    assert numbers(recovered) == [3, 2]
    assert recovered is not None
    assert encode(recovered.durable) == encode(writer.durable)


def test_its_size_is_bounded(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for number in range(20):
        writer.commit(0, number)
        writer.commit(1, number)
        writer.note()
    assert len(contents(tmp_path)) <= 2 * (FRAGMENTS + 2) + 1


def test_whatever_reads_safetensors_reads_its_files(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    file = writer.commit(0, 7)
    writer.note()
    for path in contents(tmp_path):
        with safe_open(path, framework="np") as opened:
            assert opened.metadata()["format"] == FORMAT
    loaded = load_file(file)
    np.testing.assert_array_equal(loaded["value"], value(7))
    assert loaded.keys() == {"value", "momentum", "count"}
    with safe_open(file, framework="np") as opened:
        told = opened.metadata()
    assert (told["sequence"], told["version"]) == ("1", "1.7")
    assert json.loads(told["books"])["published"][0]["version"] == [1, 7]
    content = file.read_bytes()
    assert content.count(told["blake3"].encode()) == 1
    zeroed = content.replace(told["blake3"].encode(), b"0" * 32)
    assert blake3(zeroed).hexdigest(length=16) == told["blake3"]


def test_each_array_begins_at_a_multiple_of_its_elements(tmp_path: Path) -> None:
    """As readers want that map a file into memory."""
    a, b, c = np.ones(3, np.uint8), np.ones(1, np.float32), np.ones(2, np.float64)
    Slots(RealDisk(tmp_path)).write("mixed", 1, arrays={"a": a, "b": b, "c": c})
    content = (tmp_path / "mixed.a.safetensors").read_bytes()
    arrays_at = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:arrays_at])
    assert [header[name]["data_offsets"] for name in "cba"] == [[0, 16], [16, 20], [20, 23]]
    assert arrays_at % 8 == 0


@pytest.mark.parametrize("length", [10**20, 2**63 - 1])
def test_a_shape_that_no_array_can_have_is_not_whole(tmp_path: Path, length: int) -> None:
    """No element of it would be in the file, so that sizes agree."""
    slots = Slots(RealDisk(tmp_path))
    slots.write("empty", 1, arrays={"none": np.zeros((0, 1), np.float32)})
    assert len(slots.held("empty")) == 1
    file = tmp_path / "empty.a.safetensors"
    header = file.read_bytes()[8:].replace(b'"shape":[0,1]', b'"shape":[0,%d]' % length)
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    assert len(slots.heads("empty")) == 1
    assert slots.held("empty") == []


def test_a_link_to_a_file_keeps_what_the_file_held(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    writer = Writer(folder)
    for number in range(2):
        writer.commit(0, number)
        writer.commit(1, number)
    kept = contents(folder)
    (tmp_path / "kept").mkdir()
    for path in kept:
        (tmp_path / "kept" / path.name).hardlink_to(path)
    for number in range(2, 4):
        writer.commit(0, number)
        writer.commit(1, number)
    assert numbers(recover(folder)) == [3, 3]
    assert numbers(recover(tmp_path / "kept")) == [1, 1]
    assert list(contents(tmp_path / "kept").values()) == list(kept.values())
    assert contents(folder).keys() == kept.keys()


def test_books_of_many_learners_fit_into_a_header() -> None:
    durable = fresh(RunSettings(), fragments=24, shards=4, epoch=1)
    alone = len(encode(durable))
    version, many = Version(2**20, 2**40), 2**50
    account = Account(
        many,
        Merged(2**20, 2**40, 2**20, many),
        version,
        FragmentProgress(version, 2**40, many, many),
        Claim(Fate.REJECTED, many),
    )
    name = LearnerName("x" * 64)
    durable.ledger.books[name] = Book(Incarnation(2**20, many), many, [account] * 24)
    assert alone + 4096 * (len(encode(durable)) - alone) < HEADER_BYTES_MAX / 4


def test_books_that_no_header_can_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path)
    writer.commit(0, 0)
    before = contents(tmp_path)
    monkeypatch.setattr("islands.files.slots.HEADER_BYTES_MAX", 600)
    with pytest.raises(JournalError, match=r"bytes beside its arrays, above the 600 of .*fewer"):
        writer.commit(0, 1)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("dtype", [np.complex128, np.dtype(">f4"), object, np.dtype("S3")])
def test_an_array_that_safetensors_cannot_hold_is_refused(tmp_path: Path, dtype: object) -> None:
    array = np.zeros(3, dtype)  # type: ignore[call-overload]
    with pytest.raises(JournalError, match="safetensors cannot hold odd, an array of"):
        Slots(RealDisk(tmp_path)).write("fragment", 1, arrays={"odd": array})


def three_commits(folder: Path) -> Path:
    """Both fragments at 0, then fragment 0 at 1; returns the file of that last record."""
    writer = Writer(folder)
    writer.commit(0, 0)
    writer.commit(1, 0)
    return writer.commit(0, 1)


def test_writing_goes_on_over_the_torn_record(tmp_path: Path) -> None:
    last = three_commits(tmp_path)
    last.write_bytes(last.read_bytes()[:-1])
    assert Writer(tmp_path).commit(0, 1) == last


def test_a_torn_record_costs_only_itself(tmp_path: Path) -> None:
    last = three_commits(tmp_path)
    whole = last.read_bytes()
    for length in range(len(whole)):
        last.write_bytes(whole[:length])
        assert numbers(recover(tmp_path)) == [0, 0], length
    last.write_bytes(whole)
    assert numbers(recover(tmp_path)) == [1, 0]


def test_a_flipped_bit_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    last = three_commits(tmp_path)
    whole = bytearray(last.read_bytes())
    for place in range(len(whole)):
        whole[place] ^= 1 << place % 8
        last.write_bytes(whole)
        assert numbers(recover(tmp_path)) == [0, 0], place
        whole[place] ^= 1 << place % 8


@pytest.mark.parametrize("damaged", [b"V32", b"F31", b"F3\x12", b"F\xb32", b"I32", b"U32"])
def test_a_type_that_a_bit_made_another_is_noticed(tmp_path: Path, damaged: bytes) -> None:
    last = three_commits(tmp_path)
    whole = last.read_bytes()
    assert b'"F32"' in whole
    last.write_bytes(whole.replace(b'"F32"', b'"' + damaged + b'"', 1))
    assert numbers(recover(tmp_path)) == [0, 0]


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"more", b" "], ids=["zeros", "text", "space"])
def test_a_record_with_something_behind_it_is_not_whole(tmp_path: Path, tail: bytes) -> None:
    last = three_commits(tmp_path)
    last.write_bytes(last.read_bytes() + tail)
    assert numbers(recover(tmp_path)) == [0, 0]


def test_a_journal_of_another_version_is_refused_untouched(tmp_path: Path) -> None:
    Writer(tmp_path).commit(0, 0)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes().replace(OWN, b"islands-journal-12", 1))
    before = contents(tmp_path)
    with pytest.raises(JournalError, match=r"another version of .* islands-journal-12, not"):
        Journal(RealDisk(tmp_path), FRAGMENTS).take_over()
    assert contents(tmp_path) == before


def test_one_record_that_seems_of_another_version_is_damaged(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for number in range(2):
        writer.commit(0, number)
        writer.commit(1, number)
    newest = tmp_path / "epoch.a.safetensors"
    newest.write_bytes(newest.read_bytes().replace(OWN, b"islands-journal-9", 1))
    assert numbers(Journal(RealDisk(tmp_path), FRAGMENTS).take_over()) == [1, 1]


@pytest.mark.parametrize("damage", ["flipped", "cut", "removed"])
def test_whichever_file_is_damaged_is_named_or_of_no_use(tmp_path: Path, damage: str) -> None:
    whole = tmp_path / "whole"
    writer = Writer(whole)
    for number in range(4):
        writer.commit(0, number)
        writer.commit(1, number)
        writer.note()
    for path in sorted(whole.iterdir()):
        folder = tmp_path / path.name
        shutil.copytree(whole, folder)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        if damage == "removed":
            (folder / path.name).unlink()
        else:
            (folder / path.name).write_bytes(
                content[: len(content) // 2] if damage == "cut" else content
            )
        journal = Journal(RealDisk(folder), FRAGMENTS)
        name, slot, *_ = path.name.split(".")
        if name.startswith("fragment") and slot == "b":  # what the metadata names
            found = journal.take_over()
            at = 0 if name == "fragment-00000" else 1
            assert numbers(found) == ([2, 3] if at == 0 else [3, 2])
            assert found is not None
            older = found.durable.published[at]
            assert older is not None
            assert older.version == Version(journal.epoch, 2), "newer than what members hold"
            assert older.digest == digest(as_buffer(value(2)))
            assert older.tokens == 200, "what that value accounts for, not what the lost one did"
            told = f"{name}: version 1.3 is lost, and 1.2 is published again as 2.2"
            assert journal.damaged == [path.name, told]
            later = Journal(RealDisk(folder), FRAGMENTS)
            assert numbers(later.take_over()) == numbers(found)
            continue
        assert numbers(journal.take_over()) == [3, 3]
        assert journal.epoch > writer.durable.epoch
        unread = damage == "flipped" and slot == "a" and name != "epoch"
        assert journal.damaged == ([] if unread else [path.name])
        again = Journal(RealDisk(folder), FRAGMENTS)
        assert numbers(again.take_over()) == [3, 3]
        assert again.damaged == []


@pytest.mark.parametrize("resumed", [False, True])
def test_a_folder_that_is_deleted_meanwhile_is_written_anew(tmp_path: Path, resumed: bool) -> None:  # noqa: FBT001
    folder = tmp_path / "journal"
    writer = Writer(folder)
    for fragment, number in ((0, 1), (1, 2), (0, 3)):
        writer.commit(fragment, number)
    if resumed:
        journal = Journal(RealDisk(folder), FRAGMENTS)
        recovered = journal.take_over()
        assert recovered is not None
        writer.journal, writer.durable = journal, recovered.durable
        writer.durable.epoch = journal.epoch
    shutil.rmtree(folder)
    writer.note()
    assert numbers(recover(folder)) == [3, 2]
    assert Journal(RealDisk(folder), FRAGMENTS).take_over() is not None
    with pytest.raises(FencedError):
        writer.note()


def test_a_journal_whose_folder_was_emptied_is_not_begun_anew(tmp_path: Path) -> None:
    folder, copies = tmp_path / "journal", {COPY: tmp_path / "journal.epoch"}
    Journal(RealDisk(folder, elsewhere=copies), FRAGMENTS).take_over()
    for path in folder.iterdir():
        path.unlink()
    for _ in range(2):
        with pytest.raises(DamagedError, match=r"the journal is gone.*another folder"):
            Journal(RealDisk(folder, elsewhere=copies), FRAGMENTS).take_over()
        assert list(folder.iterdir()) == []


def test_a_run_whose_first_record_was_torn_begins_anew(tmp_path: Path) -> None:
    Writer(tmp_path).commit(0, 0)
    torn = sorted(tmp_path.glob("fragment-*"))
    for path in torn:
        path.write_bytes(path.read_bytes()[:9])
    journal = Journal(RealDisk(tmp_path), FRAGMENTS)
    assert journal.take_over() is None
    assert journal.damaged == [path.name for path in torn]
    assert len(torn) == 2


def test_a_journal_of_which_much_is_damaged_is_not_begun_anew(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for fragment in range(FRAGMENTS):
        writer.commit(fragment, 0)
    for path in tmp_path.glob("fragment-*"):
        path.write_bytes(path.read_bytes()[:9])
    with pytest.raises(DamagedError, match=r"holds no run any more, and fragment-00000\.a\."):
        Journal(RealDisk(tmp_path), FRAGMENTS).take_over()


def test_a_committed_value_that_is_gone_is_named(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    damaged = writer.commit(0, 0)
    writer.commit(1, 0)
    damaged.write_bytes(b"")
    with pytest.raises(DamagedError, match=r"fragment-00000: version 1\.0 is committed"):
        recover(tmp_path)


def test_an_older_writer_is_fenced(tmp_path: Path) -> None:
    old = Writer(tmp_path)
    old.commit(0, 0)
    old.commit(1, 0)
    new = Writer(tmp_path)
    assert new.durable.epoch > old.durable.epoch
    before = contents(tmp_path)
    with pytest.raises(FencedError, match="epoch 2 owns the journal, this syncer is 1"):
        old.commit(0, 1)
    with pytest.raises(FencedError):
        old.note()
    with pytest.raises(FencedError):
        old.journal.check_owner()
    new.journal.check_owner()
    assert contents(tmp_path) == before
    new.commit(1, 1)
    assert numbers(recover(tmp_path)) == [0, 1]


class Overtaken(RealDisk):
    """A disk on which another syncer takes the journal over while a fragment is being written."""

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        super().write(name, parts)
        if name.startswith("fragment-00001"):
            Writer(self._folder)


def test_a_record_that_a_newer_writer_may_have_missed_counts_as_unwritten(tmp_path: Path) -> None:
    Writer(tmp_path).commit(0, 0)
    old = Writer(tmp_path, Overtaken(tmp_path))
    with pytest.raises(FencedError, match="owns the journal, this syncer is 2"):
        old.commit(1, 1)


class Stalled(RealDisk):
    """A disk on which another syncer takes the journal over before a fragment is written."""

    newer: Writer | None = None

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        if name.startswith("fragment-00000") and self.newer is None:
            self.newer = Writer(self._folder)
        super().write(name, parts)


def test_of_two_records_of_one_number_that_of_the_newer_writer_counts(tmp_path: Path) -> None:
    first = Writer(tmp_path)
    first.commit(0, 0)
    first.commit(1, 0)
    disk = Stalled(tmp_path)
    old = Writer(tmp_path, disk)
    with pytest.raises(FencedError, match="epoch 3 owns the journal"):
        old.commit(0, 7)
    assert disk.newer is not None
    assert numbers(recover(tmp_path)) == [7, 0], "until the newer one has written, it is harmless"
    disk.newer.commit(1, 1)
    assert disk.newer.durable.sequence == old.durable.sequence
    third = Writer(tmp_path)
    assert numbers(third.recovered) == [0, 1]
    third.commit(0, 1)
    assert numbers(recover(tmp_path)) == [1, 1]


class Unreadable(RealDisk):
    """A disk that cannot be read for once, after a fragment was written."""

    broken = False

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        super().write(name, parts)
        self.broken = name.startswith("fragment-00001")

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        if self.broken:
            self.broken = False
            raise DiskError(f"{name} cannot be read: input/output error")
        return super().open(name, at_bytes)


def test_a_record_whose_check_failed_is_not_written_again(tmp_path: Path) -> None:
    """It is durable: a second write would go over the other slot, which has the version before."""
    writer = Writer(tmp_path, Unreadable(tmp_path))
    writer.commit(0, 0)
    writer.durable.sequence += 1
    record = (writer.durable.sequence, encode(writer.durable), 1, Version(1, 0), {"a": value(0)})
    with pytest.raises(DiskError, match="input/output error"):
        writer.journal.write(*record)
    before = contents(tmp_path)
    writer.journal.write(*record)
    assert contents(tmp_path) == before


def test_an_epoch_that_a_record_has_is_not_begun_again(tmp_path: Path) -> None:
    """Its files are lost, or those of a copy, whose original may be started again many times."""
    writer = Writer(tmp_path)
    writer.commit(0, 0)
    writer.commit(1, 0)
    for path in tmp_path.glob("epoch*"):
        path.unlink()
    journal = Journal(RealDisk(tmp_path), FRAGMENTS)
    assert journal.take_over() is not None
    assert journal.epoch == writer.durable.epoch + APART


def test_nor_is_that_of_a_copy_which_lacks_some_fragment(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.commit(0, 0)
    for path in tmp_path.glob("epoch*"):
        path.unlink()
    journal = Journal(RealDisk(tmp_path), FRAGMENTS)
    assert journal.take_over() is None
    assert journal.epoch == writer.durable.epoch + APART


class FillingDisk(RealDisk):
    """A disk that becomes full in the middle of a write, so that the old file stays."""

    full = False

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        if self.full:
            raise DiskError(f"{name} cannot be written: no space left on device")
        super().write(name, parts)


def test_a_full_disk_costs_nothing_that_was_committed(tmp_path: Path) -> None:
    disk = FillingDisk(tmp_path)
    writer = Writer(tmp_path, disk)
    for fragment in range(FRAGMENTS):
        writer.commit(fragment, 0)
        writer.commit(fragment, 1)
    saved = encode(writer.durable)
    disk.full = True
    for _ in range(3):
        with pytest.raises(DiskError, match="no space left"):
            writer.commit(0, 2)
        assert numbers(recover(tmp_path)) == [1, 1]
    recovered = recover(tmp_path)
    assert recovered is not None
    assert encode(recovered.durable) == saved
    disk.full = False
    writer.commit(0, 2)
    assert numbers(recover(tmp_path)) == [2, 1]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((), np.float32),
        np.zeros((0,), np.float32),
        np.zeros((3, 0), np.float32),
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
        np.array([True, False, True]),
        np.array([np.nan, np.inf, -0.0], np.float32),
        np.arange(3, dtype=np.float16),
        np.arange(3, dtype=np.float64),
        np.arange(3, dtype=ml_dtypes.bfloat16),
        np.arange(3, dtype=np.complex64),
        np.arange(3, dtype=np.uint32),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_any_array_of_a_state_comes_back(tmp_path: Path, array: NDArray[np.generic]) -> None:
    journal = Journal(RealDisk(tmp_path), 1)
    journal.begin_epoch(1)
    durable = fresh(RunSettings(), fragments=1, shards=1, epoch=1)
    version = Version(1, 0)
    durable.published[0] = Published(version, "", 0)
    arrays = {"a odd": np.ones(3, np.uint8), "state": array, "value": value(0)}
    journal.write(1, encode(durable), 0, version, arrays)
    recovered = Journal(RealDisk(tmp_path), 1).recover()
    assert recovered is not None
    found = recovered.fragments[0]["state"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    np.testing.assert_array_equal(recovered.fragments[0]["value"], value(0))


@pytest.mark.parametrize(
    "use",
    [
        lambda disk: disk.write("a", [b"x"]),
        lambda disk: disk.open("a"),
    ],
    ids=["write", "open"],
)
def test_a_broken_disk_is_an_error_with_a_path(
    tmp_path: Path, use: Callable[[RealDisk], object]
) -> None:
    folder = tmp_path / "journal"
    disk = RealDisk(folder)
    folder.rmdir()
    folder.touch()
    with pytest.raises(DiskError, match="journal"):
        use(disk)
    with pytest.raises(JournalError, match="cannot be made"):
        RealDisk(folder)
