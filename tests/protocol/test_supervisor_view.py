"""The supervisor's view comes in pages: what is taken in, and when somebody is found absent."""

from islands.protocol.identities import Incarnation, LearnerName, Status
from islands.protocol.membership import SupervisorView
from islands.protocol.messages.membership import Member, MembershipChanged
from tests.syncer.bench import Bench, seeded
from tests.unscanned import Unscanned


def page(
    *members: tuple[str, Status], begins: bool = True, more: bool = False, epoch: int = 1
) -> MembershipChanged:
    """One page; incarnations are the first ones."""
    told = tuple(Member(LearnerName(name), Incarnation(1, 1), status) for name, status in members)
    return MembershipChanged(epoch, told, None, begins, more)


def view(bench: Bench, *pages: MembershipChanged) -> None:
    for each in pages:
        bench.do(each)


def test_pages_add_up_and_the_last_one_completes_them() -> None:
    held = SupervisorView()
    complete = []
    for each in (
        page(("a", Status.LIVE), ("b", Status.LIVE), more=True),
        page(("c", Status.LIVE), begins=False),
        page(("b", Status.LEFT), begins=False),
    ):
        assert held.take(each)
        complete.append(held.complete)
    assert complete == [False, True, True]
    assert list(held.listed) == ["a", "c"]


def test_a_view_over_a_new_link_and_another_supervisors_begin_anew() -> None:
    held = SupervisorView()
    assert not held.take(page(("z", Status.LIVE), begins=False, epoch=2))
    assert (held.complete, held.listed) == (False, {})
    assert held.take(page(("a", Status.LIVE), epoch=2))
    assert not held.take(page(("z", Status.LIVE), begins=False, epoch=3))
    assert held.take(page(("b", Status.LIVE), more=True, epoch=2))
    assert (held.complete, list(held.listed)) == (False, ["b"])
    assert not held.take(page(("a", Status.LIVE), epoch=1))
    assert held.take(page(("c", Status.LIVE), epoch=3))
    assert (held.epoch, held.complete, list(held.listed)) == (3, True, ["c"])


def test_nobody_is_absent_from_a_part_of_the_view() -> None:
    bench = seeded("ana", "ben")
    bench.drop("ben")
    for _ in range(12):
        view(bench, page(("ana", Status.LIVE), more=True))
        bench.tick(1.0)
    assert "ben" in bench.core.durable.ledger.books
    for _ in range(12):
        view(bench, page(("ana", Status.LIVE)))
        bench.tick(1.0)
    assert "ben" not in bench.core.durable.ledger.books


def test_a_change_of_one_learner_looks_at_no_other() -> None:
    bench = seeded("ana", "ben")
    view(bench, page(("ana", Status.LIVE), ("ben", Status.LIVE)))
    books = bench.core.durable.ledger.books
    bench.core.durable.ledger.books = Unscanned(books)
    view(bench, page(("ana", Status.SUSPECT), begins=False))
    view(bench, page(("ana", Status.LIVE), begins=False))
    bench.core.durable.ledger.books = books
    assert bench.core.members.learners[LearnerName("ana")].status is Status.LIVE
