"""Checkpoints of a real journal: taken beside its writes, found, verified, and gone back to."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from islands.actors.epochs import epoch_disk
from islands.cli.__main__ import main
from islands.cli.keeping import resumed
from islands.files.disk import RealDisk
from islands.files.run_files import PLAN_FILE, SPEC_FILE
from islands.keeping.catalogue import held, whole_ones
from islands.keeping.finding import AUTO, find
from islands.keeping.manifest import MANIFEST, UNFINISHED, Manifest, Retention, Schedule
from islands.keeping.restoring import go_back
from islands.keeping.saving import CHECKPOINTS, CUT, Checkpointer
from islands.keeping.store import ASIDE, FolderStore
from islands.keeping.verifying import faults_of_checkpoint, faults_of_run, journal_is_whole
from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.protocol.errors import DamagedError, UserError
from islands.protocol.identities import Incarnation, LearnerName, Version
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.journalling import Durable, fresh, resume_run
from islands.protocol.syncer.versions import Published
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.process_entries import Checkpointed, CopyFailed
from islands.run.hosting.hub_address import HubAddress, write_hub_address
from islands.settings.groups import CheckpointOptions
from islands.settings.run_spec import RunPlan, RunSpec, read, write
from islands.syncer.journal import JOURNAL, Journal, encode
from messaging.codec.tensors import as_buffer, digest

FRAGMENTS = 2
ANA = LearnerName("ana")
LEAVES = [Leaf("a", (4, 2)), Leaf("b", (4, 2))]
LAYOUT = plan(LEAVES, count=FRAGMENTS, min_piece_bytes=4)
SPEC = RunSpec(RunSettings(run="r", fragments=FRAGMENTS))
PLAN = RunPlan(LAYOUT, shards=4, begun="first")


class Run:
    """A run's folder whose journal is written by hand, and the checkpoints of it."""

    def __init__(self, folder: Path, *, every: int | None = 2, store: Path | None = None) -> None:
        self.folder = folder
        write(folder, SPEC, PLAN)
        self.journal = Journal(epoch_disk(folder, JOURNAL), FRAGMENTS)
        recovered = self.journal.take_over()
        self.durable: Durable = (
            replace(
                fresh(SPEC.settings, fragments=FRAGMENTS, shards=4, epoch=self.journal.epoch),
                run="r",
                fingerprint=LAYOUT.fingerprint,
                begun=PLAN.begun,
            )
            if recovered is None
            else recovered.durable
        )
        self.durable.epoch = self.journal.epoch
        self.store = FolderStore(store or folder / CHECKPOINTS)
        self.saver = Checkpointer(
            folder / JOURNAL, self.store, Schedule(every), Retention(3), SPEC, PLAN
        )
        self.news: list[Entry] = []

    def commit(self, number: int) -> None:
        """Make the next version of a fragment durable, with this number in all its values."""
        durable, fragment = self.durable, self.durable.merges % FRAGMENTS
        value = np.full(LAYOUT.fragments[fragment].size, number, np.float32)
        version = Version(durable.epoch, number)
        durable.published[fragment] = Published(version, digest(as_buffer(value)), number)
        durable.sequence += 1
        durable.merges += 1
        arrays = {"value": value, "momentum": -value}
        self.journal.write(durable.sequence, encode(durable), fragment, version, arrays)
        self.saver.follow(self.journal)

    def stored(self) -> list[str]:
        """Wait until what is under way is stored; returns the whole checkpoints."""
        self.saver.close()
        self.news += self.saver.news()
        return [str(each.merges) for each in whole_ones(held(self.store))]


def values_in(folder: Path) -> list[tuple[float, Version]]:
    """Each fragment's value and version in the journal of a run's folder."""
    recovered = Journal(RealDisk(folder / JOURNAL), FRAGMENTS).recover()
    assert recovered is not None
    found = []
    for arrays, published in zip(recovered.fragments, recovered.durable.published, strict=True):
        assert published is not None
        (value,) = np.unique(arrays["value"])
        np.testing.assert_array_equal(arrays["momentum"], -np.asarray(arrays["value"], np.float32))
        found.append((float(value), published.version))
    return found


def records(folder: Path) -> dict[str, bytes]:
    found = sorted((folder / JOURNAL).iterdir())
    return {
        path.name: path.read_bytes() for path in found if path.is_file() and path.name != "lock"
    }


def trained(folder: Path, merges: int = 8, **wanted: object) -> Run:
    """A run of so many merges, each stored before the next."""
    run = Run(folder, **wanted)  # type: ignore[arg-type]
    for number in range(1, merges + 1):
        run.commit(number)
        run.stored()
    return run


def test_a_checkpoint_is_one_moment_of_the_run(tmp_path: Path) -> None:
    run = trained(tmp_path)
    assert run.stored() == ["4", "6", "8"]
    for name in run.stored():
        again = go_back(find(name, tmp_path), tmp_path / f"from-{name}")
        assert again.spec == SPEC
        found = [value for value, _ in values_in(tmp_path / f"from-{name}")]
        assert sorted(found) == [int(name) - 1, int(name)]
    assert CUT not in {path.name for path in (tmp_path / JOURNAL).iterdir()}
    told = [entry for entry in run.news if isinstance(entry, Checkpointed)]
    assert [entry.merges for entry in told] == [2, 4, 6, 8]
    assert told[0].reason == "every 2 merges"


def test_writes_while_it_is_stored_do_not_change_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.commit(1)
    run.commit(2)
    for number in range(3, 9):  # while the thread that stores it may not have begun
        run.durable.merges += 1  # as if nothing were due
        run.commit(number)
    run.stored()
    assert faults_of_checkpoint(find("2", tmp_path)) == []
    go_back(find("2", tmp_path), tmp_path / "again")
    assert sorted(value for value, _ in values_in(tmp_path / "again")) == [1, 2]


def test_checkpoints_on_another_file_system_are_copies(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", store=tmp_path / "other")
    journal = {path.stat().st_ino for path in (tmp_path / "run" / JOURNAL).iterdir()}
    shared = [p for p in (tmp_path / "other" / "1-8").iterdir() if p.stat().st_ino in journal]
    assert len(shared) == FRAGMENTS, "on one file system they are links"
    assert run.stored() == ["4", "6", "8"]
    assert find(str(tmp_path / "other"), tmp_path).manifest.merges == 8
    assert find(str(tmp_path / "other" / "1-6"), tmp_path).manifest.merges == 6


def test_the_run_goes_back_and_on(tmp_path: Path) -> None:
    run = trained(tmp_path)
    run.durable.ledger.open(ANA, Incarnation(1, 1))
    (tmp_path / "final.safetensors").write_bytes(b"values")
    restored = go_back(find("4", tmp_path), tmp_path)
    assert restored.manifest.merges == 4
    found = values_in(tmp_path)
    assert sorted(value for value, _ in found) == [3, 4]
    later = Version(run.journal.epoch, 10**6)
    assert all(version > later for _, version in found), "who trained on adopts them"
    aside = tmp_path / "set_aside" / "1"
    assert (aside / "final.safetensors").read_bytes() == b"values"
    assert FolderStore(tmp_path / CHECKPOINTS / ASIDE).names() == ["1-6", "1-8"]
    assert any(path.name.startswith("fragment-00001") for path in (aside / JOURNAL).iterdir())
    told = read(tmp_path)
    assert told is not None
    assert told[1].begun not in ("", PLAN.begun), "members of before join anew"
    journal = Journal(epoch_disk(tmp_path, JOURNAL), FRAGMENTS)
    recovered = journal.take_over()
    assert recovered is not None
    assert journal.epoch > run.journal.epoch
    assert journal.damaged == []
    resume_run(recovered.durable, SPEC.settings, LAYOUT.fingerprint, told[1].begun)
    assert recovered.durable.ledger.books == {}
    again = Run(tmp_path, every=2)
    for number in (5, 6):
        again.commit(number)
        again.stored()
    assert [each.name for each in whole_ones(held(again.store))] == [
        "1-4",
        f"{again.journal.epoch}-6",
    ]


def test_what_is_asked_for_is_taken_though_nothing_is_due(tmp_path: Path) -> None:
    run = Run(tmp_path, every=None)
    run.saver.ask("an operator")
    run.commit(1)
    assert run.stored() == [], "not all fragments have a value yet"
    run.commit(2)
    assert run.stored() == ["2"]
    run.commit(3)
    assert run.stored() == ["2"]


@contextmanager
def read_by_somebody(run: Run, name: str) -> Iterator[None]:
    with run.store.reading(f"1-{name}"):
        yield


def test_one_that_somebody_reads_stays(tmp_path: Path) -> None:
    run = trained(tmp_path, 4)
    with read_by_somebody(run, "2"):
        for number in range(5, 11):
            run.commit(number)
            run.stored()
        assert run.stored() == ["2", "6", "8", "10"]
    for number in (11, 12):
        run.commit(number)
    assert run.stored() == ["8", "10", "12"]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [Path.unlink, cut_short, flipped])
def test_whatever_is_damaged_is_named_and_never_resumed_from(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    run = trained(tmp_path, 2, store=tmp_path / "elsewhere")
    files = sorted(path.name for path in (tmp_path / "elsewhere" / "1-2").iterdir())
    assert len(files) == FRAGMENTS + 3
    before = records(tmp_path)
    for name in files:
        path = tmp_path / "elsewhere" / "1-2" / name
        content = path.read_bytes()
        path.unlink()  # a link may share its content with the journal
        path.write_bytes(content)
        damage(path)
        if name == MANIFEST:
            with pytest.raises((UserError, DamagedError)):
                find("2", tmp_path, run.store)
        else:
            found = find("2", tmp_path, run.store)
            (fault,) = faults_of_checkpoint(found)
            assert name in fault or "2" in fault
            with pytest.raises(DamagedError):
                go_back(found, tmp_path)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
    assert records(tmp_path) == before
    assert faults_of_checkpoint(find("2", tmp_path, run.store)) == []


def test_damaged_settings_are_named_though_their_copy_is_whole(tmp_path: Path) -> None:
    trained(tmp_path, 2)
    flipped(tmp_path / SPEC_FILE)
    assert faults_of_run(tmp_path) == [
        f"{tmp_path / SPEC_FILE} is damaged; the next start mends it"
    ]
    assert journal_is_whole(tmp_path)


def test_one_without_a_manifest_is_passed_over_and_removed(tmp_path: Path) -> None:
    run = trained(tmp_path, 4)
    halves = [tmp_path / CHECKPOINTS / name for name in ("1-4", "1-5")]
    (halves[0] / MANIFEST).rename(halves[0] / UNFINISHED)
    halves[1].mkdir()
    photo = halves[1] / "photo.jpg"
    photo.write_text("a user's own, in a folder whose name is such by chance")
    assert find(AUTO, tmp_path).manifest.merges == 2
    with pytest.raises(UserError, match="there is no whole checkpoint"):
        find("4", tmp_path)
    assert all("it has no manifest" in fault for fault in faults_of_run(tmp_path))
    for number in (5, 6):
        run.commit(number)
    assert run.stored() == ["2", "6"]
    assert sorted(path.name for path in (tmp_path / CHECKPOINTS).iterdir()) == ["1-2", "1-5", "1-6"]
    assert photo.exists()


def test_a_folder_of_another_run_is_left_alone(tmp_path: Path) -> None:
    trained(tmp_path / "one", 2, store=tmp_path / "store")
    run = Run(tmp_path / "two", store=tmp_path / "store")
    run.saver.plan = replace(PLAN, begun="another")
    for number in (1, 2):
        run.commit(number)
    assert run.stored() == ["2"]
    (told,) = run.news
    assert isinstance(told, CopyFailed)
    assert "is a checkpoint of another run, named 'r'" in told.error


def test_a_hub_that_was_replaced_stores_nothing(tmp_path: Path) -> None:
    old = trained(tmp_path, 3)
    new = Run(tmp_path)
    for number in (4, 5):
        new.commit(number)
    assert new.stored() == ["2", "5"]
    old.saver.ask("an operator")
    old.saver.follow(old.journal)
    assert old.stored() == ["2", "5"]
    assert "a newer syncer owns the journal" in str(old.news[-1])


def test_a_store_that_is_away_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    run = Run(tmp_path / "run", store=tmp_path / "file" / "folder")
    for number in range(1, 5):
        run.commit(number)
        run.stored()
    assert len(run.news) == 2
    assert all(isinstance(entry, CopyFailed) for entry in run.news)
    assert [value for value, _ in values_in(tmp_path / "run")] == [3, 4]


class Full(FolderStore):
    """A store on a disk that has room for the journal alone."""

    def free_bytes(self) -> float:
        return 100.0


def test_a_disk_without_room_for_journal_and_checkpoint_gets_none(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.saver.store = run.store = Full(tmp_path / CHECKPOINTS)
    for number in (1, 2):
        run.commit(number)
    assert run.stored() == []
    (told,) = run.news
    assert isinstance(told, CopyFailed)
    assert "would leave the disk too full" in told.error
    assert list((tmp_path / CHECKPOINTS).glob("*")) == []


def test_a_folder_that_a_hub_uses_is_not_gone_back_in(tmp_path: Path) -> None:
    trained(tmp_path, 4)
    before = sorted(tmp_path.rglob("*"))
    with (tmp_path / "hub.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="in use by another hub"):
            go_back(find("2", tmp_path), tmp_path)
    assert sorted({*tmp_path.rglob("*")} - {tmp_path / "hub.lock"}) == before


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    trained(tmp_path / "one", 2)
    other = replace(SPEC, task="islands.tasks.text:Text")
    with pytest.raises(UserError, match="is of another run, with task"):
        go_back(find(str(tmp_path / "one"), tmp_path), tmp_path / "two", other)


def test_a_journal_that_is_gone_is_told_from_one_that_is_whole(tmp_path: Path) -> None:
    run = trained(tmp_path, 4)
    assert journal_is_whole(tmp_path)
    for path in (tmp_path / JOURNAL).iterdir():
        path.unlink()
    assert not journal_is_whole(tmp_path)
    go_back(find(AUTO, tmp_path), tmp_path)
    assert journal_is_whole(tmp_path)
    assert faults_of_run(tmp_path) == []
    assert run.durable.merges == 4


def test_commands_find_what_the_hub_stores_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, store, copy = tmp_path / "run", tmp_path / "store", tmp_path / "copy"
    trained(folder, store=store)
    write_hub_address(folder, HubAddress("ws://hub/supervisor", "r", checkpoints=str(store)))
    assert main(["checkpoints", str(folder)]) == 0
    assert "1-8" in capsys.readouterr().out
    assert main(["backup", str(folder), "--out", str(copy)]) == 0
    assert f"{copy} holds checkpoint 1-8" in capsys.readouterr().out
    elsewhere = CheckpointOptions(checkpoints=str(tmp_path / "of another host"))
    resumed(AUTO, copy, elsewhere, SPEC, None, "")
    assert journal_is_whole(copy)
    (store / "1-8" / MANIFEST).unlink()
    assert main(["verify", str(folder)]) == 1
    assert f"{store / '1-8'}: it has no manifest" in capsys.readouterr().out


def test_the_manifest_tells_what_the_run_had(tmp_path: Path) -> None:
    run = trained(tmp_path, 2)
    manifest = held(run.store)["1-2"]
    assert isinstance(manifest, Manifest)
    assert (manifest.run, manifest.merges, manifest.epoch) == ("r", 2, run.journal.epoch)
    assert {SPEC_FILE, PLAN_FILE} < set(manifest.files)
    assert manifest.size_bytes == sum(
        path.stat().st_size
        for path in (tmp_path / CHECKPOINTS / "1-2").iterdir()
        if path.name != MANIFEST
    )
