"""A mirror: a second journal on another disk, in which a hub can go on."""

import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from islands.actors.epochs import epoch_disk
from islands.keeping.mirror import LINKS, Mirror
from islands.keeping.store import ASIDE
from islands.keeping.verifying import faults_of_run
from islands.protocol.errors import DiskError, FencedError, UserError
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.process_entries import CopyFailed, Mirrored
from islands.settings.run_spec import read, write
from islands.syncer.journal import JOURNAL, Journal
from tests.integration.small_disk import small_disk, unavailable
from tests.keeping.test_checkpoints import FRAGMENTS, PLAN, SPEC, Run, values_in


class Mirrors:
    """A run with a mirror, which copies each record after it is durable."""

    def __init__(self, folder: Path, *, waits: bool) -> None:
        self.run = Run(folder / "run", every=None)
        self.other = folder / "other"
        self.mirror = Mirror(self.run.folder, self.other, SPEC, PLAN, waits, retry_s=0.01)
        self.news: list[Entry] = []

    def commit(self, number: int) -> None:
        self.run.commit(number)
        self.mirror.follow(self.run.journal)

    def close(self) -> None:
        self.mirror.close()
        self.news += self.mirror.news()


@pytest.mark.parametrize("waits", [True, False])
def test_every_record_is_copied_and_a_hub_goes_on_there(tmp_path: Path, waits: bool) -> None:  # noqa: FBT001
    both = Mirrors(tmp_path, waits=waits)
    for number in range(1, 10):
        both.commit(number)
        if waits and number >= FRAGMENTS:
            assert values_in(both.other) == values_in(both.run.folder)
    both.close()
    assert both.news == []
    assert values_in(both.other) == values_in(both.run.folder)
    assert read(both.other) == read(both.run.folder)
    assert list((both.run.folder / JOURNAL).glob(f"{LINKS}/*")) == []
    journal = Journal(epoch_disk(both.other, JOURNAL), FRAGMENTS)
    recovered = journal.take_over()
    assert recovered is not None
    assert recovered.durable.merges == 9
    assert journal.epoch > both.run.journal.epoch
    assert faults_of_run(both.other) == []


def test_a_run_that_went_back_sets_its_earlier_mirror_aside(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=True)
    for number in range(1, 6):
        both.commit(number)
    both.close()
    both.run = Run(tmp_path / "back", every=None)
    plan = replace(PLAN, begun="second", went_back_from=PLAN.origin)
    write(both.run.folder, SPEC, plan)
    both.mirror = Mirror(both.run.folder, both.other, SPEC, plan, waits=True)
    for number in range(20, 24):
        both.commit(number)
    both.close()
    assert values_in(both.other) == values_in(both.run.folder)
    assert read(both.other) == (SPEC, plan)
    aside = both.other / ASIDE / "1"
    assert {value for value, _ in values_in(aside)} == {4.0, 5.0}


def test_a_record_waits_for_a_copy_that_fails(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=True)
    both.other.write_text("a file, for now")
    both.run.commit(1)
    for _ in range(3):
        with pytest.raises(DiskError, match=r"the copy in .* fails"):
            both.mirror.follow(both.run.journal)
    both.other.unlink()
    both.mirror.follow(both.run.journal)
    both.commit(2)
    both.close()
    assert values_in(both.other) == values_in(both.run.folder)
    assert [type(entry) for entry in both.news] == [CopyFailed, Mirrored]


NO_MOUNT = unavailable()


@pytest.mark.skipif(NO_MOUNT is not None, reason=NO_MOUNT or "")
def test_a_full_mirror_is_told_once_and_waited_for(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=True)
    with small_disk(both.other, 2**20) as disk:
        disk.fill()
        both.run.commit(1)
        for _ in range(3):
            with pytest.raises(DiskError, match=r"the copy in .* fails: .*No space left"):
                both.mirror.follow(both.run.journal)
        disk.empty()
        both.mirror.follow(both.run.journal)
        both.commit(2)
        both.close()
        assert values_in(both.other) == values_in(both.run.folder)
    assert [type(entry) for entry in both.news] == [CopyFailed, Mirrored]


def test_without_waiting_the_run_goes_on_and_the_copy_catches_up(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=False)
    both.other.write_text("a file, for now")
    for number in range(1, 70):
        both.commit(number)
    assert values_in(both.run.folder)[0][0] >= 60
    both.other.unlink()
    both.commit(70)
    both.close()
    assert values_in(both.other) == values_in(both.run.folder)
    assert [type(entry) for entry in both.news] == [CopyFailed, Mirrored]


@pytest.mark.parametrize("waits", [True, False])
def test_a_folder_of_another_run_gets_no_copy(tmp_path: Path, waits: bool) -> None:  # noqa: FBT001
    first = Mirrors(tmp_path / "first", waits=True)
    for number in (1, 2):
        first.commit(number)
    first.close()
    both = Mirrors(tmp_path / "second", waits=waits)
    plan = replace(PLAN, begun="another")
    mirror = Mirror(both.run.folder, first.other, SPEC, plan, waits, retry_s=0.01, close_s=0.2)
    before = values_in(first.other)
    both.run.commit(1)
    if waits:
        with pytest.raises(UserError, match="is the mirror of another run; name another folder"):
            mirror.follow(both.run.journal)
    else:
        mirror.follow(both.run.journal)
        mirror.close()
        assert "is the mirror of another run" in str(next(mirror.news()))
    assert values_in(first.other) == before


def test_where_a_hub_has_gone_on_the_old_syncer_ends(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=True)
    for number in (1, 2):
        both.commit(number)
    both.close()
    newer = Journal(epoch_disk(both.other, JOURNAL), FRAGMENTS)
    assert newer.take_over() is not None
    before = values_in(both.other)
    for start in range(3):  # however often it is started, so however high its own epoch is
        again = Run(both.run.folder, every=None)
        again.commit(3 + start)
        waits = start > 0
        old = Mirror(both.run.folder, both.other, SPEC, PLAN, waits)
        if not waits:  # its thread finds out
            old.follow(again.journal)
            old.close()
        with pytest.raises(FencedError, match="a hub has gone on in "):
            old.follow(again.journal)
    assert values_in(both.other) == before


def test_a_mirror_that_vanishes_is_told_and_made_again(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=False)
    for number in (1, 2):
        both.commit(number)
    links = both.run.folder / JOURNAL / LINKS
    while list(links.iterdir()):  # each goes once its record is copied
        pass
    shutil.rmtree(both.other)
    for number in (3, 4):
        both.commit(number)
    both.close()
    assert values_in(both.other) == values_in(both.run.folder)
    assert stat.S_IMODE(both.other.stat().st_mode) == 0o700


def test_an_absent_mirror_holds_few_records(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=False)
    both.other.write_text("a file, for now")
    for number in range(1, 40):
        both.commit(number)
    held = list((both.run.folder / JOURNAL / LINKS).iterdir())
    assert len(held) <= 2 * FRAGMENTS + 1
    both.mirror.close_s = 0.0
    both.close()


def test_a_first_copy_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=True)
    both.other.mkdir()
    (both.other / "run.json").write_text("half of it")
    for number in (1, 2):
        both.commit(number)
    assert values_in(both.other) == values_in(both.run.folder)
    both.close()


def test_a_secret_is_its_owners_alone(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=True)
    (both.run.folder / "key").write_text("of the run")
    (both.run.folder / "revoked.json").write_text("{}")
    both.commit(1)
    both.close()
    for name in ("key", "revoked.json"):
        assert stat.S_IMODE((both.other / name).stat().st_mode) == 0o600
