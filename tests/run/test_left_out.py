"""Who is left out of rounds, and what was merged in time, as the hub counts both."""

from pathlib import Path

import pytest
from msgspec import structs

from islands.protocol.identities import SUPERVISOR, SYNCER, LearnerName, Role
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.member_entries import Admitted
from islands.protocol.tape.round_entries import AskedAgain, LeftOut
from islands.run.records.run_folder import RunFolder
from tests.protocol.tape.samples import MERGED


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "one", RunSettings(run="one", budget_tokens=7))


def test_who_is_left_out_is_known_until_it_is_asked_again(folder: RunFolder) -> None:
    name = LearnerName("a")
    folder.write(1.0, SUPERVISOR, Admitted("a", Role.LEARNER, "1.1"))
    folder.write(2.0, SYNCER, LeftOut(name, "two pulls unanswered", 12))
    learner = folder.figures.learners["a"]
    assert learner.left_out == "two pulls unanswered"
    folder.write(3.0, SYNCER, AskedAgain(name, 20, "two pulls unanswered"))
    assert learner.left_out == ""
    folder.write(4.0, SYNCER, LeftOut(name, "two pulls unanswered", 12))
    folder.write(5.0, SUPERVISOR, Admitted("a", Role.LEARNER, "1.2"))
    assert learner.left_out == ""


def test_what_only_the_end_merged_is_counted_apart(folder: RunFolder) -> None:
    folder.write(1.0, SUPERVISOR, Admitted("a", Role.LEARNER, "1.1"))
    names = [LearnerName("a")]
    facts = {"participants": names, "tokens": [100], "behind": [0], "contributions": 1}
    folder.write(2.0, SYNCER, structs.replace(MERGED, **facts))
    folder.write(3.0, SYNCER, structs.replace(MERGED, **facts, belated=[60]))
    learner = folder.figures.learners["a"]
    assert (learner.merged_tokens, learner.belated_tokens, learner.unmerged) == (200, 60, 0)
    others = {**facts, "participants": [LearnerName("b")]}
    folder.write(4.0, SYNCER, structs.replace(MERGED, **others))
    assert learner.unmerged == 1
