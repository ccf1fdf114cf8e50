"""One process's membership: admissions, heartbeats, fencing, coming back, rest; its view."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.actors.role_actor import too_long
from islands.protocol.identities import Incarnation, LearnerName, Phase, Role, Status
from islands.protocol.membership import (
    EpochOrder,
    HeartbeatContent,
    MembershipState,
    SupervisorView,
)
from islands.protocol.messages.membership import (
    Evicted,
    Heartbeat,
    HeartbeatAck,
    Join,
    Joined,
    Leave,
    Member,
    MembershipChanged,
)
from islands.protocol.messages.training import Welcome
from tests.syncer.bench import Bench, seeded
from tests.unscanned import Unscanned

NAME = LearnerName("ana")
FIRST = Incarnation(1, 1)
STEPPING = HeartbeatContent(Phase.STEPPING, 7)
MERGING = HeartbeatContent(Phase.MERGING, 9, epoch=3, address="here")


def outside(role: Role = Role.LEARNER, proof: str = "") -> MembershipState:
    """A process with a link to the supervisor, that nobody has admitted."""
    return MembershipState("run", role, NAME, "print", proof, supervisor_up=True)


def joined(incarnation: Incarnation, epoch: int | None = None) -> Joined:
    """An admission, by the supervisor that gives such incarnations, or by another one."""
    by = incarnation.epoch if epoch is None else epoch
    return Joined("run", NAME, incarnation, f"of {incarnation}", by, ("syncer",))


def admitted(incarnation: Incarnation = FIRST) -> MembershipState:
    state = outside()
    assert state.on_joined(joined(incarnation))
    return state


def evicted(incarnation: Incarnation) -> Evicted:
    return Evicted(NAME, incarnation, "silent")


@pytest.mark.parametrize("role", [Role.LEARNER, Role.OBSERVER, Role.SYNCER])
def test_who_is_not_admitted_asks_and_who_is_shows_life(role: Role) -> None:
    state = outside(role, "holds the key")
    asked = state.say(MERGING, 0.0)
    assert isinstance(asked, Join)
    assert (asked.role, asked.proof, asked.address) == (role, "holds the key", "here")
    assert (asked.previous, asked.credential) == (None, "")
    assert state.on_joined(joined(FIRST))
    assert state.say(MERGING, 1.0) == Heartbeat(
        *(role, NAME, FIRST, Phase.MERGING, 9, "of 1.1"),
        *(3, "here", 1),
    )


def test_nothing_is_said_without_a_link() -> None:
    state = outside()
    state.supervisor_up = False
    assert state.say(STEPPING, 0.0) is None
    member = admitted()
    member.supervisor_up = False
    assert member.say(STEPPING, 0.0) is None
    member.supervisor_up = True
    assert isinstance(member.say(STEPPING, 0.0), Heartbeat), "an admission is kept over links"


@pytest.mark.parametrize("again", [Incarnation(1, 1), Incarnation(1, 2), Incarnation(2, 1)])
def test_a_second_admission_replaces_none(again: Incarnation) -> None:
    state = admitted()
    assert not state.on_joined(joined(again))
    assert (state.incarnation, state.credential) == (FIRST, "of 1.1")


def test_an_ended_incarnation_never_comes_back() -> None:
    state = admitted(Incarnation(1, 4))
    assert state.on_evicted(evicted(Incarnation(1, 4)))
    for old in (Incarnation(1, 3), Incarnation(1, 4)):
        assert not state.on_joined(joined(old))
    asked = state.say(STEPPING, 0.0)
    assert isinstance(asked, Join)
    assert (asked.previous, asked.credential) == (Incarnation(1, 4), "of 1.4")
    assert state.on_joined(joined(Incarnation(1, 5)))


def test_the_end_of_another_incarnation_is_old_news() -> None:
    state = admitted(Incarnation(1, 4))
    assert not state.on_evicted(evicted(Incarnation(1, 3)))
    assert state.incarnation == Incarnation(1, 4)
    assert not outside().on_evicted(evicted(FIRST))


def test_an_older_supervisor_is_fenced() -> None:
    """Neither its admissions nor its addresses count, once a newer one was heard."""
    state = outside()
    assert state.on_ack(HeartbeatAck(2, ("a", "b"))) == ("a", "b")
    assert state.on_ack(HeartbeatAck(1, ("old",))) == ()
    assert not state.on_joined(joined(Incarnation(1, 9)))
    assert not state.on_joined(joined(Incarnation(2, 1), epoch=1))
    assert state.on_joined(joined(Incarnation(2, 1)))
    assert state.on_ack(HeartbeatAck(2, ("c",))) == ("c",)


def test_every_supervisor_is_shown_the_proof_of_the_newest() -> None:
    state = admitted()
    state.on_ack(HeartbeatAck(3, (), "third"))
    state.on_ack(HeartbeatAck(2, (), "second"))
    for _ in range(2):
        word = state.say(STEPPING, 0.0)
        assert isinstance(word, Heartbeat | Join)
        assert (word.supervisor_epoch, word.supervisor_proof) == (3, "third")
        state.end()


def test_the_syncer_with_the_highest_epoch_is_followed() -> None:
    state = admitted()
    assert state.on_welcome(Welcome(3, (), proof="third")) is EpochOrder.NEWER
    assert state.on_welcome(Welcome(3, (), proof="forged")) is EpochOrder.SAME
    assert state.on_welcome(Welcome(2, (), proof="second")) is EpochOrder.OLDER
    assert (state.epoch_seen, state.epoch_proof) == (3, "third")


def test_only_who_is_admitted_says_goodbye() -> None:
    assert outside().farewell("bye") is None
    assert admitted().farewell("nan", diverged=True) == Leave(NAME, FIRST, "nan", diverged=True)


def test_a_long_goodbye_is_cut_to_what_a_hub_receives() -> None:
    """A traceback as the reason would end the link, and tell nobody why."""
    said = admitted().farewell("why " * 10_000)
    assert said is not None
    assert too_long(said) is None
    assert said.reason.startswith("why why")


@pytest.mark.parametrize("heartbeat_s", [0.001, 1.0, 300.0])
def test_who_diverges_in_a_row_rests_longer_each_time(heartbeat_s: float) -> None:
    state, now_s = admitted(), 0.0
    rests = [state.rest(heartbeat_s, now_s, well=False) for _ in range(12)]
    assert rests == [0.0, *(heartbeat_s * 2.0 ** min(n, 8) for n in range(11))]
    state.end()
    assert state.say(STEPPING, rests[-1] * 0.999) is None
    assert isinstance(state.say(STEPPING, rests[-1]), Join)
    assert state.rest(heartbeat_s, now_s, well=True) == 0.0


INCARNATIONS = st.builds(Incarnation, st.integers(1, 3), st.integers(1, 4))
Word = Callable[[MembershipState], object]


def joining(incarnation: Incarnation) -> Word:
    return lambda state: state.on_joined(joined(incarnation))


def ending(incarnation: Incarnation) -> Word:
    return lambda state: state.on_evicted(evicted(incarnation))


def acknowledging(epoch: int) -> Word:
    return lambda state: state.on_ack(HeartbeatAck(epoch))


WORDS = st.lists(
    INCARNATIONS.map(joining) | INCARNATIONS.map(ending) | st.integers(1, 3).map(acknowledging),
    max_size=20,
)


@given(WORDS)
def test_in_any_order_incarnations_and_epochs_only_grow(words: list[Word]) -> None:
    state = outside()
    last = Incarnation(0, 0)
    for word in words:
        epoch = state.supervisor_epoch
        word(state)
        after = (state.incarnation, state.previous, state.credential, state.supervisor_epoch)
        word(state)
        again = (state.incarnation, state.previous, state.credential, state.supervisor_epoch)
        assert again == after
        assert state.supervisor_epoch >= epoch
        held = state.incarnation or state.previous or last
        assert held >= last
        last = held


# --- the supervisor's view comes in pages ---------------------------------------------------------


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
