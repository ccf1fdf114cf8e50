"""A process or its host ends between any two operations on files; the next start is consistent.

Each state that `Crashes` has seen is restored, and a hub is started over it.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from islands.actors.epochs import epoch_disk
from islands.keeping.catalogue import held, whole_ones
from islands.keeping.finding import Found, find
from islands.keeping.manifest import Manifest
from islands.keeping.restoring import go_back
from islands.keeping.saving import CHECKPOINTS
from islands.keeping.store import FolderStore
from islands.keeping.verifying import faults_of_checkpoint
from islands.protocol.errors import DamagedError
from islands.protocol.syncer.journalling import APART
from islands.settings.run_spec import read
from islands.syncer.journal import JOURNAL, Journal
from tests.keeping.crashes import Crashes, restore
from tests.keeping.test_checkpoints import FRAGMENTS, PLAN, SPEC, Run, trained, values_in
from tests.keeping.test_mirror import Mirrors

COMMITS = 5
OTHER = replace(SPEC, settings=replace(SPEC.settings, learning_rate=0.25))


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where the host has one: thousands of files are made and removed."""
    memory = Path("/dev/shm")  # noqa: S108
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


def left(crashes: Crashes, room: Path) -> Iterator[tuple[str, int, Path]]:
    """Restore what each crash left, in a folder of its own, with its kind and its moment."""
    assert len(crashes.states) > 20
    for number, ((kind, tree), moment) in enumerate(crashes.states.items()):
        folder = restore(tree, room / str(number))
        yield f"{kind}, {number}", moment, folder
        shutil.rmtree(folder)


def resumed(folder: Path) -> int | None:
    """Start over a journal; return how many merges it holds, which are one moment of the run."""
    recovered = Journal(epoch_disk(folder, JOURNAL), FRAGMENTS).take_over()
    if recovered is None:
        return None
    merges = recovered.durable.merges
    assert sorted(value for value, _ in values_in(folder)) == [merges - 1, merges]
    return merges


def acknowledged(told: dict[int, int], moment: int) -> int:
    return max((number for number, at in told.items() if at <= moment), default=0)


def test_a_commit(room: Path) -> None:
    root, told = room / "root", dict[int, int]()
    root.mkdir()
    crashes = Crashes(root)
    with crashes.watched():
        run = Run(root / "run", every=None)
        for number in range(1, COMMITS + 1):
            run.commit(number)
            told[number] = crashes.moment()
    for crash, moment, folder in left(crashes, room):
        least = acknowledged(told, moment)
        assert read(folder / "run") in ((SPEC, PLAN), None), crash
        merges = resumed(folder / "run") or 0
        assert merges >= least or least < FRAGMENTS, crash
        if merges:
            assert read(folder / "run") is not None, crash
            Run(folder / "run", every=None).commit(merges + 1)
            assert resumed(folder / "run") == merges + 1, crash


@pytest.mark.quick("links")
@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
def test_a_save(room: Path, links: bool) -> None:  # noqa: FBT001
    """Whatever has a manifest is whole, the newest that was told is there, and no half stays."""
    root = room / "root"
    run = trained(root, 7)
    crashes = Crashes(root, links=links)
    with crashes.watched():
        run.commit(8)
        assert run.stored() == ["4", "6", "8"], "the fourth, so one is removed"
        done = crashes.moment()
    for crash, moment, folder in left(crashes, room):
        store, least = FolderStore(folder / CHECKPOINTS), 6 if moment < done else 8
        whole = [each for each in held(store).values() if isinstance(each, Manifest)]
        for each in whole:
            assert faults_of_checkpoint(Found(store, each)) == [], crash
        assert any(each.merges >= least for each in whole), crash
        merges = resumed(folder)
        assert merges is not None, crash
        again = Run(folder)
        again.commit(merges + 1)
        again.commit(merges + 2)
        assert again.stored()[-1] == str(merges + 2), crash
        names = [each.name for each in whole_ones(held(store))]
        assert sorted(held(store)) == sorted(names), crash
        assert len(names) == 3, crash


def found_anywhere(folder: Path) -> set[str]:
    """All records of a journal that lie in a run's folder, or were set aside."""
    return {path.name for path in folder.rglob("fragment-*") if CHECKPOINTS not in path.parts}


@pytest.mark.quick("run")
@pytest.mark.parametrize("there", ["run", "another"])
def test_going_back(room: Path, there: str) -> None:
    """The run goes on as it was, or it went back, or the same command is given once more."""
    root = room / "root"
    trained(root / "run", 6)
    crashes = Crashes(root)
    with crashes.watched():
        go_back(find("4", root / "run"), root / there, OTHER)
        done = crashes.moment()
    outcomes = set[str]()
    for crash, moment, folder in left(crashes, room):
        target = folder / there
        outcome = gone_back(shutil.copytree(target, folder / "copy")) if target.exists() else "-"
        outcomes.add(outcome)
        assert outcome == "back" or moment < done, crash
        told = read(target)
        assert told is not None or there == "another", crash
        if told is not None and outcome != "gone":
            assert told[0] == (OTHER if outcome == "back" else SPEC), crash
        wish = "4" if there == "run" else str(folder / "run" / CHECKPOINTS / "1-4")
        go_back(find(wish, target), target, OTHER)
        assert gone_back(target) == "back", crash
    assert outcomes >= {"back", "gone"}


def gone_back(folder: Path) -> str:
    """Start in a folder; return where the run is then."""
    try:
        merges = resumed(folder)
    except DamagedError as error:
        assert "the journal is gone" in str(error)  # noqa: PT017
        return "gone"
    return {None: "new", 4: "back", 6: "before"}[merges]


def test_what_is_set_aside_is_lost_in_no_crash(room: Path) -> None:
    root = room / "root"
    trained(root, 6)
    crashes = Crashes(root)
    with crashes.watched():
        go_back(find("4", root), root)
    for crash, _, folder in left(crashes, room):
        kept = [
            resumed(path.parent) for path in folder.rglob(JOURNAL) if any(path.glob("fragment-*"))
        ]
        assert 6 in kept, crash
        assert {path.name for path in folder.rglob("1-6")} == {"1-6"}, crash


def test_a_start_over_a_copy(room: Path) -> None:
    """However often it is cut off, its epoch is none that a start over the original takes."""
    root = room / "root"
    both = Mirrors(room, waits=True)
    both.commit(1)
    both.commit(2)
    both.close()
    both.other.rename(root)
    crashes = Crashes(root)
    with crashes.watched():
        assert resumed(root) == 2
    for crash, _, folder in left(crashes, room):
        journal = Journal(epoch_disk(folder, JOURNAL), FRAGMENTS)
        assert journal.take_over() is not None, crash
        assert journal.epoch >= both.run.journal.epoch + APART, crash


@pytest.mark.quick("waits")
@pytest.mark.parametrize("waits", [True, False], ids=["waits", "follows"])
def test_a_copy_in_a_mirror(room: Path, waits: bool) -> None:  # noqa: FBT001
    """With `durability: mirrored` what was acknowledged is in it; the old hub goes on copying."""
    root, told = room / "root", dict[int, int]()
    root.mkdir()
    crashes = Crashes(root)
    with crashes.watched():
        both = Mirrors(root, waits=waits)
        for number in range(1, COMMITS + 1):
            both.commit(number)
            told[number] = crashes.moment()
        both.close()
    for crash, moment, folder in left(crashes, room):
        if waits and acknowledged(told, moment) >= FRAGMENTS:
            copy = shutil.copytree(folder / "other", folder / "copy")
            assert (resumed(copy) or 0) >= acknowledged(told, moment), crash
            assert read(copy) == (SPEC, PLAN), crash
        merges = resumed(folder / "run") if (folder / "run").exists() else None
        if merges is not None:
            again = Mirrors(folder, waits=waits)
            again.commit(merges + 1)
            again.close()
            assert values_in(folder / "other") == values_in(folder / "run"), crash
            assert resumed(folder / "other") == merges + 1, crash
