"""What a store records is enough to redo it: older bases, clipped norms, restarts, lost frames."""

from dataclasses import replace
from math import inf, isnan, nan
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from islands.cli.__main__ import main
from islands.lab.replay.arithmetic import Doubles
from islands.lab.replay.replaying import Findings, Replay, of_the_step
from islands.layout.fragments import plan
from islands.layout.leaves import VALUE_BYTES, Layout, Leaf, Role
from islands.numerics.norms import measure
from islands.numerics.outer import Sgd
from islands.protocol.errors import UserError
from islands.protocol.identities import Incarnation, LearnerName, Ticket, Version
from islands.protocol.settings.choices import Anchor, MergeRule
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge, MergePart
from islands.run.records.merge_record import (
    FOLDER,
    LENGTH,
    MAGIC,
    Began,
    ContributionRecorder,
    Header,
    Merged,
)
from islands.syncer.value_store import ValueStore

LAYOUT: Layout = plan(
    [Leaf("w", (16, 8)), Leaf("bias", (8,)), Leaf("state:mean", (8,), role=Role.STATE)],
    count=1,
    min_piece_bytes=4,
)
(FRAGMENT,) = LAYOUT.fragments
SETTINGS = RunSettings(fragments=1, outer=OuterSettings(learning_rate=0.7, momentum=0.9))
NAMES = ("ana", "ben")
EXACT = 1e-6


class Recorded:
    """A store that records, as a syncer's start has one.

    Args:
        folder: the run's folder.
        settings: the run's settings.
        epoch: the start's epoch.
    """

    def __init__(self, folder: Path, settings: RunSettings = SETTINGS, epoch: int = 1) -> None:
        """Begin a file of the record."""
        optimizer = Sgd.of(settings.outer)
        self.told: list[str] = []
        self._recorder = ContributionRecorder(folder, settings, LAYOUT, "Sgd", self.told.append)
        self.store = ValueStore(settings, LAYOUT, optimizer, self._recorder)
        self.epoch = epoch
        self.number = 0
        self._rng = np.random.default_rng(epoch)

    def seed(self) -> None:
        """Begin with version 0."""
        value = self._rng.standard_normal(FRAGMENT.size).astype(np.float32)
        digests = self.store.keep_initial([value])
        self.store.install_seed(Version(self.epoch, 0), digests)

    def merge(self, before: Version, *bases: Version, scale: float = 1.0) -> Version:
        """Merge one contribution for each base, of random values, and return the new version."""
        parts = []
        for name, base in zip(NAMES, bases, strict=False):
            ticket = Ticket(self.epoch, self.number, LearnerName(name), Incarnation(1, 1))
            values = 0.1 * self._rng.standard_normal(FRAGMENT.size).astype(np.float32)
            self.store.hold(ticket, 0, measure(values, FRAGMENT.units))
            tokens = 80 if name == "ana" else 320
            parts.append(MergePart(ticket, 0, base, 10, tokens, scale))
        target = Version(self.epoch, before.number + 1)
        self.number += 1
        self.store.merge(BeginMerge(0, self.number, before, target, tuple(parts)))
        return target

    def journalled(self, version: Version) -> dict[str, NDArray[np.generic]]:
        """What the journal would hold of a version."""
        return self.store.journal_arrays(0, version)

    def close(self) -> None:
        """End the start."""
        self._recorder.close()


def replayed(folder: Path) -> Findings:
    """What a replay of the record finds."""
    return Replay(folder).run()


def lengthen(file: Path, share: float, nth: int = 0, part: slice = slice(None)) -> None:
    """Make one contribution longer in the record of a merge: the published value is of the other.

    Args:
        file: the record of one start.
        share: what it is multiplied by.
        nth: the merge.
        part: which of its numbers.
    """
    record = bytearray(file.read_bytes())
    at, merges = len(MAGIC), 0
    while at < len(record):
        (size,) = LENGTH.unpack_from(record, at)
        at += LENGTH.size + size
        header = msgspec.json.decode(record[at - size : at], type=Header)
        if isinstance(header, Merged):
            if merges == nth:
                sent = np.frombuffer(record, "<f4", header.sizes[0], at)
                sent[part] *= np.float32(share)
            merges += 1
        at += 0 if isinstance(header, Began) else VALUE_BYTES * sum(header.sizes)
    file.write_bytes(record)


@pytest.mark.parametrize("anchor", Anchor)
@pytest.mark.parametrize("merge", [rule for rule in MergeRule if not rule.robust])
@pytest.mark.parametrize("learning_rate", [1e-3, 0.7, 1.0])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_contribution_that_is_two_percent_longer_is_noticed(
    tmp_path: Path, anchor: Anchor, merge: MergeRule, learning_rate: float, momentum: float
) -> None:
    """At a low rate too, where the value is 10,000 times as long as the step; honest ones pass."""
    outer = OuterSettings(learning_rate=learning_rate, momentum=momentum)
    start = Recorded(tmp_path, replace(SETTINGS, anchor=anchor, merge=merge, outer=outer))
    start.seed()
    version = Version(1, 0)
    bases = [version, version]
    for _ in range(6):
        version = start.merge(version, *bases)
        bases = [version, bases[0]]
    start.close()
    assert main(["replay", str(tmp_path)]) == 0
    assert replayed(tmp_path).step_error < 1e-5
    lengthen(tmp_path / FOLDER / "0001.record", 1.02, nth=3, part=slice(0, 128))
    found = replayed(tmp_path)
    assert [one.step_error > 1e-4 for one in found.merges[:4]] == [False, False, False, True]
    assert main(["replay", str(tmp_path)]) == 1


def test_a_step_is_judged_by_its_own_length() -> None:
    """Beyond what float32 rounds off; a step of no length has no error, or an infinite one."""
    before, redone, half_a_unit = np.array([1024.0]), np.array([1024.5]), 2.0**-14

    def judged(end: float, to: Doubles = redone, terms: float = 0.0) -> tuple[float, float]:
        return of_the_step(before, to, np.array([end], np.float32), np.array([terms]))

    assert judged(1024.5) == pytest.approx((0.0, half_a_unit / 0.5))
    assert judged(1024.625)[0] == pytest.approx((0.125 - half_a_unit) / 0.5)
    assert judged(1024.625, terms=2.0**16)[0] == pytest.approx((0.0625 - half_a_unit) / 0.5)
    assert judged(1024.0, before) == (0.0, 0.0)
    assert judged(1025.0, before) == (inf, 0.0)
    assert isnan(judged(nan)[0])


def test_a_longer_state_hides_no_step(tmp_path: Path) -> None:
    """Averages of states are 1,000 times as long as the steps of parameters; each is judged."""
    for part in (slice(0, 128), slice(136, 144)):  # of the weights, then of the state
        folder = tmp_path / str(part.start)
        outer = OuterSettings(learning_rate=1e-3, momentum=0.0)
        start = Recorded(folder, replace(SETTINGS, outer=outer))
        start.seed()
        start.merge(Version(1, 0), Version(1, 0))
        start.close()
        assert replayed(folder).step_error < 1e-5
        lengthen(folder / FOLDER / "0001.record", 1.001, part=part)
        assert replayed(folder).step_error > 3e-4


@pytest.mark.parametrize("anchor", Anchor)
def test_older_bases_and_clipped_norms_are_redone(tmp_path: Path, anchor: Anchor) -> None:
    """Anchored at the current value, a contribution's base matters; at its base, it does not."""
    start = Recorded(tmp_path, replace(SETTINGS, anchor=anchor))
    start.seed()
    first = start.merge(Version(1, 0), Version(1, 0), Version(1, 0))
    second = start.merge(first, first, Version(1, 0))
    third = start.merge(second, Version(1, 0), second, scale=0.25)
    start.merge(third, third)
    start.close()
    found = replayed(tmp_path)
    assert [redone.contributions for redone in found.merges] == [2, 2, 2, 1]
    assert found.error < EXACT
    assert all(redone.published for redone in found.merges)
    assert start.told == []


def test_a_restart_goes_on_from_what_was_redone(tmp_path: Path) -> None:
    """A second file begins with the recovered value; a merge that was not journalled is left."""
    start = Recorded(tmp_path)
    start.seed()
    kept = start.merge(Version(1, 0), Version(1, 0), Version(1, 0))
    recovered = start.journalled(kept)
    start.merge(kept, kept, kept)  # the syncer is killed before this version is durable
    start.close()
    again = Recorded(tmp_path, epoch=2)
    again.store.restore(0, kept, dict(recovered))
    last = again.merge(kept, kept, kept)
    again.merge(last, last, last)
    again.close()
    assert len(list((tmp_path / FOLDER).iterdir())) == 2
    found = replayed(tmp_path)
    versions = [str(redone.version) for redone in found.merges]
    assert versions == ["1.1", "1.2", "2.2", "2.3"]
    assert found.gaps == []
    assert found.error < EXACT


def test_merges_that_are_missing_are_told(tmp_path: Path) -> None:
    """After a lost start the fragment goes on from the recovered value and momentum."""
    start = Recorded(tmp_path)
    start.seed()
    version = start.merge(Version(1, 0), Version(1, 0), Version(1, 0))
    start.close()
    lost = Recorded(tmp_path, epoch=2)
    lost.store.restore(0, version, dict(start.journalled(version)))
    for _ in range(6):
        version = lost.merge(version, version, version)
    lost.close()
    (tmp_path / FOLDER / "0002.record").unlink()
    again = Recorded(tmp_path, epoch=3)
    again.store.restore(0, version, dict(lost.journalled(version)))
    again.merge(version, version)
    again.close()
    found = replayed(tmp_path)
    assert [str(redone.version) for redone in found.merges] == ["1.1", "3.8"]
    (gap,) = found.gaps
    assert gap.startswith("fragment 0: merges between 1.1 and 2.7 are not recorded; it goes on")
    assert found.error < EXACT


def test_what_follows_a_lost_frame_cannot_be_redone(tmp_path: Path) -> None:
    """It is told for each version, and no error is made up."""
    start = Recorded(tmp_path)
    start.seed()
    first = start.merge(Version(1, 0), Version(1, 0))
    start.close()  # what is merged now finds no writer
    start.merge(first, first)
    again = Recorded(tmp_path, epoch=1)
    again.store.restore(0, Version(1, 2), dict(start.journalled(Version(1, 2))))
    again.merge(Version(1, 2), Version(1, 2))
    again.close()
    (tmp_path / FOLDER / "0002.record").rename(tmp_path / FOLDER / "0003.record")
    assert "merges between 1.1 and 1.2 are not recorded" in replayed(tmp_path).gaps[0]
    only = tmp_path / FOLDER / "0001.record"
    content = only.read_bytes()
    place = content.rindex(b'{"type":"merged"')
    (tmp_path / FOLDER / "0003.record").unlink()
    only.write_bytes(
        content[:place] + content[place:].replace(b'"before":[1,0]', b'"before":[1,9]')
    )
    assert replayed(tmp_path).gaps == [
        "fragment 0: version 1.1 cannot be redone, since the merge that made 1.9 is not recorded"
    ]
    assert replayed(tmp_path).merges == []


def test_a_header_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    """The sentence names the file and the place."""
    start = Recorded(tmp_path)
    start.seed()
    start.close()
    file = tmp_path / FOLDER / "0001.record"
    file.write_bytes(file.read_bytes().replace(b'"type":"held"', b'"type":"kept"'))
    with pytest.raises(UserError, match=r"0001.record is damaged at byte \d+"):
        replayed(tmp_path)
