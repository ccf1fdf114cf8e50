"""A link that is lost again and again is told of, and one that is lost now and then is not."""

from islands.protocol.identities import LearnerName
from islands.protocol.tape.member_entries import LinkUnsteady
from islands.protocol.unsteady_links import LOSSES_KEPT, WITHIN_S, LostLinks
from islands.run.records.tape_sentences import sentence
from tests.syncer.bench import seeded


def test_three_losses_in_two_minutes_are_told_and_then_once_in_two_minutes() -> None:
    link = LostLinks()
    assert [link.lost(at_s) for at_s in (0.0, 40.0, 80.0, 120.0, 160.0, 200.0)] == [
        *(None, None, 3),
        *(None, None, 3),
    ]
    seldom = LostLinks()
    assert {seldom.lost(hour * 3600.0) for hour in range(100)} == {None}
    apart = LostLinks()
    assert {apart.lost(number * WITHIN_S / 2) for number in range(100)} == {None}


def test_a_link_that_flaps_without_end_takes_bounded_memory() -> None:
    link = LostLinks()
    told = [times for number in range(10_000) if (times := link.lost(number / 1000)) is not None]
    assert told == [3]
    assert len(link.at_s) == LOSSES_KEPT


def test_the_syncer_tells_whose_link_it_is() -> None:
    bench, told_of = seeded("ana", "bo"), list[LinkUnsteady]()
    for _ in range(3):
        bench.drop("ana")
        told_of += bench.entries(LinkUnsteady)
        bench.hello("ana")
        bench.now_s += 30.0
    (found,) = told_of
    assert found == LinkUnsteady(LearnerName("ana"), 3)
    told = sentence("syncer", found)
    assert told.startswith("the link of ana to the syncer was lost 3 times in two minutes")
