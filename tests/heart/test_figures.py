"""What the check of the heart measures, on tapes of a few entries, and what its bounds refuse."""

import pytest
from msgspec import structs

from islands.protocol.identities import LearnerName, Role, Status
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.member_entries import Admitted, Evicted, Killed, StatusChanged
from islands.protocol.tape.round_entries import Closing
from tests.heart.__main__ import RUNS
from tests.heart.figures import START_S, Figures, Gaps
from tests.protocol.tape.samples import MERGED

ANA = "ana"


def merged(*names: str) -> Entry:
    return structs.replace(MERGED, participants=[LearnerName(name) for name in names])


def gaps(*lines: tuple[float, Entry]) -> tuple[float, int, str]:
    found = Gaps()
    for at_s, entry in lines:
        found.follow(at_s, entry)
    return found.longest


JOINED = (0.0, Admitted(ANA, Role.LEARNER, "1.1"))


def test_a_gap_is_between_two_merges_of_one_learner() -> None:
    lines = [JOINED, (10.0, merged(ANA)), (12.0, merged("ben")), (15.0, merged(ANA))]
    assert gaps(*lines) == (5.0, 2, ANA)
    assert gaps(*lines, (22.0, Closing("tokens")), (99.0, merged(ANA))) == (10.0, 1, "ben")


def test_who_is_never_merged_is_left_out_from_its_start_on() -> None:
    others = [(float(at_s), merged("ben")) for at_s in range(1, 60)]
    longest_s, rounds, name = gaps(JOINED, *others, (60.0, Closing("tokens")))
    assert (longest_s, rounds, name) == (60.0 - START_S, 59, ANA)


@pytest.mark.parametrize(
    "gone", [Evicted(ANA, "1.1", "silent"), Killed(ANA), StatusChanged(ANA, Status.SUSPECT)]
)
def test_an_absence_is_no_gap(gone: Entry) -> None:
    assert gaps(JOINED, (10.0, merged(ANA)), (10.5, gone), (50.0, merged(ANA)))[0] == 0.0


def test_the_bounds_refuse_what_the_faults_made_of_these_runs() -> None:
    bounds = {name: bound for name, bound, _ in RUNS}
    good = Figures(0.96, 0.5, 1, ANA, 0.998, 2.19, 11.0, 92.0)
    starved = Figures(0.50, 42.2, 974, ANA, 1.0, 0.0, 11.0, 87.0)
    worse = Figures(0.887, 0.78, 7, ANA, 0.998, 2.268, 20.0, 90.0)
    assert bounds["demo"].broken(good) == []
    assert len(bounds["demo"].broken(worse)) == 1
    small = bounds["a small model in one fragment, two learners"]
    assert len(small.broken(starved)) == 2
