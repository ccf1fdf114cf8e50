"""A syncer is told of members also when they have ended, or it would wait for them."""

from islands.protocol.handlers import Received
from islands.protocol.identities import Incarnation, Role, Status
from islands.protocol.messages.membership import Leave, MembershipChanged
from islands.protocol.supervisor.actions import Action
from tests.supervisor.desk import Desk, beat, sent, syncer_beat


def told(actions: list[Action]) -> dict[str, tuple[Incarnation, Status]]:
    pages = sent(actions, MembershipChanged)
    return {m.name: (m.incarnation, m.status) for page in pages for m in page.members}


def staffed() -> tuple[Desk, Incarnation, Incarnation, Incarnation]:
    desk = Desk()
    syncer = desk.admit("s", 1, role=Role.SYNCER)
    return desk, syncer, desk.admit("a", 2), desk.admit("b", 3)


def test_the_evicted_are_in_the_view() -> None:
    desk, syncer, ana, ben = staffed()
    actions: list[Action] = []
    for _ in range(6):
        actions += desk.wait(1.0, syncer_beat(syncer))
        actions += desk.hear(beat(ben, "b"), 3)
    assert desk.status("a") is Status.EVICTED
    assert told(actions)["a"] == (ana, Status.EVICTED)
    assert told(actions)["b"] == (ben, Status.LIVE)


def test_those_who_left_are_in_the_view() -> None:
    """Its departure is told with its incarnation, so that nothing later is taken of it."""
    desk, syncer, ana, _ = staffed()
    actions = desk.handle(Received(Leave("a", ana, "asked to"), 0))  # type: ignore[arg-type]
    actions += desk.wait(0.5, syncer_beat(syncer))
    assert told(actions)["a"] == (ana, Status.LEFT)


def test_a_successor_is_in_the_view_under_its_own_incarnation() -> None:
    desk, syncer, ana, _ = staffed()
    actions = desk.wait(4.0, syncer_beat(syncer))
    actions += desk.join("a", 5)
    again = desk.state.members["a"].incarnation
    actions += desk.wait(0.5, syncer_beat(syncer))
    assert again > ana
    assert told(actions)["a"] == (again, Status.LIVE)
