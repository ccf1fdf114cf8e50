"""When a learner answers a pull, and with what."""

from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Ticket, Version
from islands.protocol.learner.account import Pulls
from islands.protocol.learner.events import SnapshotTaken
from islands.protocol.messages.training import PullFragment

BASE = Version(1, 0)
NO_BYTES = memoryview(b"")


def pull(fragment: int, round_: int = 0) -> PullFragment:
    ticket = Ticket(1, round_, LearnerName("ana"), Incarnation(1, 1))
    return PullFragment(ticket, FragmentIndex(fragment), BASE)


def snapshot(fragment: int, steps: int, base: Version = BASE) -> SnapshotTaken:
    return SnapshotTaken(FragmentIndex(fragment), base, steps, steps * 10, NO_BYTES)


def test_the_next_fragments_are_snapshotted_ahead() -> None:
    pulls = Pulls(fragments=4, lookahead=2)
    assert pulls.plan() == (0, 1)
    pulls.asked(pull(2))
    assert pulls.plan() == (2, 3, 0)
    pulls.closed(2)
    assert pulls.plan() == (3, 0)


def test_a_slow_learner_looks_further_ahead() -> None:
    pulls = Pulls(fragments=10, lookahead=1)
    pulls.stepped()
    for fragment in range(4):
        pulls.asked(pull(fragment, fragment))
        pulls.closed(fragment)
    assert pulls.plan() == (4,)
    pulls.stepped()
    assert pulls.plan() == (4, 5, 6, 7, 8)
    pulls.stepped()
    assert pulls.plan() == (4, 5, 6, 7)


def test_a_restarted_syncer_makes_nobody_look_further_ahead() -> None:
    pulls = Pulls(fragments=24, lookahead=3)
    for fragment in range(4):
        pulls.asked(pull(fragment, fragment))
        pulls.closed(fragment)
        pulls.stepped()
    assert pulls.plan() == (4, 5, 6)
    pulls.link_changed()
    pulls.stepped()
    pulls.asked(pull(2, 2))
    pulls.closed(2)
    pulls.stepped()
    assert pulls.plan() == (3, 4, 5)


def test_a_repeated_pull_makes_nobody_look_further_ahead() -> None:
    pulls = Pulls(fragments=24, lookahead=3)
    for fragment in (0, 1, 0):
        pulls.asked(pull(fragment, fragment))
    pulls.stepped()
    assert pulls.plan() == (0, 1, 2, 3, 4)


def test_who_joins_late_looks_no_further_ahead() -> None:
    pulls = Pulls(fragments=24, lookahead=3)
    pulls.asked(pull(20))
    pulls.closed(20)
    pulls.stepped()
    assert pulls.plan() == (21, 22, 23)


def test_what_was_answered_is_not_copied_again_before_its_fate_is_known() -> None:
    """A snapshot taken between an answer and the adoption that follows would be worthless."""
    pulls = Pulls(fragments=1, lookahead=3)
    pulls.asked(pull(0))
    pulls.closed(0)
    assert pulls.plan() == ()
    pulls.asked(pull(0, 1))
    assert pulls.plan() == (0,)
    pulls.closed(0)
    pulls.decided(0)
    assert pulls.plan() == (0,)


def test_a_snapshot_of_any_age_answers_with_its_base_and_enough_steps() -> None:
    pulls = Pulls(fragments=2, lookahead=1)
    pulls.keep(snapshot(0, steps=8))
    for least_steps, usable in ((4, True), (8, True), (9, False)):
        found = pulls.answerable(0, base=BASE, least_steps=least_steps)
        assert (found is not None) is usable
    assert pulls.answerable(0, base=Version(1, 1), least_steps=4) is None
    assert pulls.answerable(0, base=BASE, least_steps=9) is None
    assert pulls.answerable(1, base=BASE, least_steps=4) is None


def test_a_pull_is_answered_once_per_link() -> None:
    pulls = Pulls(fragments=2, lookahead=1)
    pulls.asked(pull(0))
    pulls.closed(0)
    pulls.asked(pull(0))
    assert pulls.wanted == {}
    pulls.link_changed()
    pulls.asked(pull(0))
    assert list(pulls.wanted) == [0]


def test_a_newer_pull_of_a_fragment_ends_the_older() -> None:
    pulls = Pulls(fragments=2, lookahead=1)
    assert pulls.asked(pull(0, 4)) is None
    assert pulls.asked(pull(0, 4)) is None  # the same again
    assert pulls.asked(pull(0, 6)) == pull(0, 4)
    assert pulls.wanted[0].ticket.round == 6
    assert pulls.overtaken(0, pull(0, 4).ticket)
    assert not pulls.overtaken(0, pull(0, 6).ticket)
    pulls.closed(0)
    assert not pulls.unanswered(0, pull(0, 4).ticket)  # a newer answer took its turn in a queue
    assert pulls.unanswered(0, pull(0, 6).ticket)  # this one is opened again
    assert pulls.asked(pull(0, 8)) == pull(0, 6)


def test_an_answer_that_was_not_sent_is_given_when_asked_again() -> None:
    pulls = Pulls(fragments=2, lookahead=1)
    pulls.asked(pull(0))
    pulls.closed(0)
    pulls.unanswered(0, pull(0).ticket)
    assert pulls.wanted == {}
    pulls.asked(pull(0))
    assert list(pulls.wanted) == [0]
    pulls.closed(0)
    pulls.stepped()
    assert pulls.wanted == {}


def test_an_answer_that_was_not_sent_is_given_at_the_next_boundary() -> None:
    """Not at once, since the link would not take it; a fresh snapshot is planned for it."""
    pulls = Pulls(fragments=4, lookahead=1)
    pulls.asked(pull(0))
    pulls.closed(0)
    pulls.unanswered(0, pull(0).ticket)
    assert 0 in pulls.plan()
    pulls.stepped()
    assert pulls.wanted == {0: pull(0)}


def test_only_the_answer_that_counts_can_be_missing() -> None:
    pulls = Pulls(fragments=2, lookahead=1)
    pulls.asked(pull(0, 3))
    pulls.closed(0)
    pulls.unanswered(0, pull(0, 1).ticket)
    pulls.stepped()
    assert pulls.wanted == {}
    pulls.unanswered(0, pull(0, 3).ticket)
    pulls.link_changed()
    pulls.stepped()
    assert pulls.wanted == {}


def test_what_is_asked_for_comes_before_what_is_due_whatever_is_held() -> None:
    pulls = Pulls(fragments=4, lookahead=3)
    pulls.keep(snapshot(1, 3))
    pulls.asked(pull(1))
    assert pulls.plan()[0] == 1
