"""Observers only read: they count for nothing, and are forgotten with their links."""

from dataclasses import replace

from islands.protocol.identities import Incarnation, LearnerName, Phase, Role
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.events import LinkClosed, LinkOpened
from islands.protocol.tape.round_entries import Closed, Merged, Opened
from tests.syncer.bench import Bench, Learner, opened, seeded

CONNECTION = 500


def observe(bench: Bench, name: str, *, counter: int = 90, connection: int = CONNECTION) -> None:
    """An observer opens a link."""
    observer = Learner(name, bench.fragments, counter)
    observer.phase = Phase.STARVED
    hello = bench.hello_of(observer)
    progress = replace(hello.progress, batch_tokens=0, step_time_s=0.0)
    hello = replace(hello, role=Role.OBSERVER, progress=progress)
    bench.do(LinkOpened(hello, connection, trusted=True))


def leave(bench: Bench, name: str, *, connection: int = CONNECTION) -> None:
    """Its link closes."""
    bench.do(LinkClosed(name, connection))


def test_observers_that_came_and_went_leave_nothing() -> None:
    """Whatever is done for all that are known costs nothing for those that are gone."""
    bench = seeded("ana")
    for number in range(200):
        observe(bench, f"reader-{number}", connection=CONNECTION + number)
        leave(bench, f"reader-{number}", connection=CONNECTION + number)
    assert list(bench.core.members.learners) == ["ana"]
    assert list(bench.core.durable.ledger.books) == ["ana"]


def test_an_observer_comes_back_as_it_was_or_as_another() -> None:
    """It has no account, so nothing of it is fenced; it gets all values once more."""
    bench = seeded("ana")
    for counter in (90, 90, 91):
        observe(bench, "reader", counter=counter)
        assert bench.dismissed() == []
        assert [update.fragment for update in bench.updates()] == [0, 1]
        assert bench.core.members.learners[LearnerName("reader")].incarnation == Incarnation(
            1, counter
        )
        leave(bench, "reader")


def test_a_replaced_link_of_an_observer_forgets_nobody() -> None:
    """The old link closes after the new one has opened: the observer is still here."""
    bench = seeded("ana")
    observe(bench, "reader", connection=CONNECTION)
    observe(bench, "reader", connection=CONNECTION + 1)
    leave(bench, "reader", connection=CONNECTION)
    assert bench.core.members.learners[LearnerName("reader")].connection == CONNECTION + 1


def test_observers_are_not_counted_as_learners() -> None:
    """The share of a round, and who was there and left out, are told of learners alone."""
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=2))
    observe(bench, "reader")
    pulls = opened(bench)
    assert [entry.left_out for entry in bench.entries(Opened)] == [{}]
    shares: list[float] = []
    for pull in pulls:
        bench.answer(pull)
        shares += [entry.share for entry in bench.entries(Closed)]
    bench.merge()
    (merged,) = bench.entries(Merged)
    assert shares == [1.0]
    assert (merged.learners, merged.contributions) == (2, 2)
    assert bench.core.durable.present_sum == 2
