"""The supervisor's view comes in pages: what is taken in, and when somebody is found absent."""

from islands.protocol.identities import Incarnation, LearnerName, Status
from islands.protocol.membership import SupervisorView
from islands.protocol.messages.membership import Member, MembershipChanged
from tests.syncer.bench import Bench, seeded
from tests.unscanned import Unscanned


def page(
    *members: tuple[str, Status], after: int = 0, number: int = 0, latest: int = 0, epoch: int = 1
) -> MembershipChanged:
    """One page; incarnations are the first ones."""
    told = tuple(Member(LearnerName(name), Incarnation(1, 1), status) for name, status in members)
    return MembershipChanged(epoch, told, None, after, number, latest)


def view(bench: Bench, *pages: MembershipChanged) -> None:
    for each in pages:
        bench.do(each)


def test_pages_add_up_and_the_last_one_completes_them() -> None:
    held = SupervisorView()
    complete = []
    for each in (
        page(("a", Status.LIVE), ("b", Status.LIVE), number=2, latest=3),
        page(("c", Status.LIVE), after=2, number=3, latest=3),
        page(("b", Status.LEFT), after=3, number=4, latest=4),
    ):
        assert held.take(each)
        complete.append(held.complete)
    assert complete == [False, True, True]
    assert list(held.listed) == ["a", "c"]


def test_a_page_after_one_that_is_missing_is_not_taken() -> None:
    held = SupervisorView()
    assert held.take(page(("a", Status.LIVE), number=1, latest=1))
    later = page(("c", Status.LIVE), after=2, number=3, latest=3)
    assert not held.take(later)
    assert (held.number, list(held.listed)) == (1, ["a"])
    assert held.take(page(("b", Status.LIVE), ("c", Status.LIVE), after=1, number=3, latest=3))
    assert held.take(later)
    assert not held.take(page(("b", Status.LIVE), after=1, number=2, latest=2))
    assert (held.number, held.complete) == (3, True)


def test_another_supervisors_view_begins_anew() -> None:
    held = SupervisorView()
    assert held.take(page(("a", Status.LIVE), number=9, latest=9, epoch=2))
    assert not held.take(page(number=9, latest=9, epoch=1))
    assert not held.take(page(after=9, number=10, latest=10, epoch=3))
    assert (held.epoch, held.number, held.complete, list(held.listed)) == (3, 0, False, [])
    assert held.take(page(("b", Status.LIVE), number=10, latest=10, epoch=3))
    assert list(held.listed) == ["b"]


def test_nobody_is_absent_from_a_part_of_the_view() -> None:
    bench = seeded("ana", "ben")
    bench.drop("ben")
    for _ in range(12):
        view(bench, page(("ana", Status.LIVE), number=1, latest=2))
        bench.tick(1.0)
    assert "ben" in bench.core.durable.ledger.books
    for _ in range(12):
        view(bench, page(("ana", Status.LIVE), number=1, latest=1))
        bench.tick(1.0)
    assert "ben" not in bench.core.durable.ledger.books


def test_a_change_of_one_learner_looks_at_no_other() -> None:
    bench = seeded("ana", "ben")
    view(bench, page(("ana", Status.LIVE), ("ben", Status.LIVE), number=2, latest=2))
    books = bench.core.durable.ledger.books
    bench.core.durable.ledger.books = Unscanned(books)
    view(bench, page(("ana", Status.SUSPECT), after=2, number=3, latest=3))
    view(bench, page(("ana", Status.LIVE), after=3, number=4, latest=4))
    bench.core.durable.ledger.books = books
    assert bench.core.members.learners[LearnerName("ana")].status is Status.LIVE
