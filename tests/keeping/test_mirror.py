"""A mirror: a second journal on another disk, in which a hub can go on."""

from pathlib import Path

import pytest

from islands.actors.epochs import epoch_disk
from islands.keeping.mirror import LINKS, WAITING_MOST, Mirror
from islands.keeping.verifying import faults_of_run
from islands.layout.leaves import layout_of
from islands.protocol.errors import DiskError, FencedError
from islands.protocol.settings.choices import Pattern
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.process_entries import CopyFailed, Mirrored
from islands.settings.run_spec import RunPlan, read, write
from islands.syncer.journal import JOURNAL, Journal
from tests.keeping.test_checkpoints import FRAGMENTS, LEAVES, PLAN, SPEC, Run, trained, values_in


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


def test_without_waiting_the_run_goes_on_and_the_copy_catches_up(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=False)
    both.other.write_text("a file, for now")
    for number in range(1, WAITING_MOST + 10):
        both.commit(number)
    assert values_in(both.run.folder)[0][0] >= WAITING_MOST
    both.other.unlink()
    both.commit(WAITING_MOST + 10)
    both.close()
    assert values_in(both.other) == values_in(both.run.folder)
    assert [type(entry) for entry in both.news] == [CopyFailed, Mirrored]


@pytest.mark.parametrize("waits", [True, False])
def test_a_folder_of_another_run_gets_no_copy(tmp_path: Path, waits: bool) -> None:  # noqa: FBT001
    both = Mirrors(tmp_path, waits=waits)
    trained(both.other, 2)
    told = read(both.other)
    assert told is not None
    layout = layout_of(LEAVES, told[1].layout.fragments, Pattern.BALANCED, {"of": "another run"})
    write(both.other, SPEC, RunPlan(layout, told[1].shards))
    before = values_in(both.other)
    both.run.commit(1)
    if waits:
        with pytest.raises(DiskError, match="holds another run; name another folder as mirror"):
            both.mirror.follow(both.run.journal)
    else:
        both.mirror.follow(both.run.journal)
    both.mirror.close_s = 0.2
    both.close()
    assert "holds another run" in str(both.news[0])
    assert values_in(both.other) == before


def test_an_old_syncer_ends_where_a_newer_one_has_gone_on(tmp_path: Path) -> None:
    both = Mirrors(tmp_path, waits=True)
    for number in (1, 2):
        both.commit(number)
    both.close()
    newer = Journal(epoch_disk(both.other, JOURNAL), FRAGMENTS)
    assert newer.take_over() is not None
    old = Mirror(both.run.folder, both.other, SPEC, PLAN, waits=True)
    both.run.commit(3)
    with pytest.raises(FencedError, match=r"a newer syncer has gone on in .*/other: its epoch is"):
        old.follow(both.run.journal)
