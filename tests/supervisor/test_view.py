"""Thousands of members: what changed is told, in pages, and no event looks at everybody."""

import pytest

from islands.protocol.identities import Incarnation, Phase, Role, Status
from islands.protocol.membership import SupervisorView
from islands.protocol.messages.control import Command, CommandAnswer, Verb
from islands.protocol.messages.membership import Heartbeat, MembershipChanged
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.protocol.settings.run import Timing
from islands.protocol.supervisor.actions import Action
from islands.protocol.supervisor.events import CommandArrived, LinkClosed, Ticked
from islands.protocol.supervisor.memory import ENDED_REMEMBERED, VIEW_PAGE_MEMBERS
from islands.protocol.supervisor.state import NAMES_MAX
from messaging.codec.frames import Codec
from messaging.envelope import Envelope
from tests.supervisor.desk import TIMING, Desk, beat, sent
from tests.unscanned import Unscanned

CROWD = 600
SYNCER_LINK = 5000
CODEC = Codec(MESSAGE_TYPES)


def crowd(
    number: int = CROWD, prefix: str = "", timing: Timing = TIMING
) -> tuple[Desk, dict[str, Incarnation]]:
    """So many learners are here, each on a link of its own, and a syncer that was told nothing."""
    desk = Desk(timing=timing)
    desk.admit("s", SYNCER_LINK, role=Role.SYNCER)
    names = [f"{prefix}{index:04}" for index in range(number)]
    return desk, {name: desk.admit(name, index + 1) for index, name in enumerate(names)}


def ask(desk: Desk, link: int = SYNCER_LINK) -> list[Action]:
    """The syncer's heartbeat, which a page of the view answers."""
    incarnation = desk.state.members["s"].incarnation
    return desk.hear(Heartbeat(Role.SYNCER, "s", incarnation, Phase.STARVED, 0, epoch=1), link)


def taken(view: SupervisorView, actions: list[Action]) -> list[MembershipChanged]:
    """A syncer takes in what was sent to it, through frames; returns the pages."""
    pages = sent(actions, MembershipChanged)
    for page in pages:
        header = CODEC.encode(Envelope("supervisor", "syncer", 1, page))
        body = CODEC.decode(header)[0].body
        assert isinstance(body, MembershipChanged)
        assert view.take(body)
    return pages


def names_of(pages: list[MembershipChanged]) -> list[str]:
    return [member.name for page in pages for member in page.members]


@pytest.mark.parametrize("number", [CROWD, 2 * VIEW_PAGE_MEMBERS])
def test_a_syncer_learns_of_hundreds_through_frames_within_the_limits(number: int) -> None:
    desk, admitted = crowd(number, prefix="n" * 60)
    view = SupervisorView()
    pages = taken(view, ask(desk))
    assert len(pages) > 1
    assert view.complete
    assert sorted(view.listed) == sorted(admitted)
    assert [page.begins for page in pages] == [True, *(False for _ in pages[1:])]


def test_a_syncer_is_told_what_changed_and_no_more() -> None:
    desk, admitted = crowd()
    view = SupervisorView()
    taken(view, ask(desk))
    pages = taken(view, desk.handle(LinkClosed(7)))
    assert [(m.name, m.status) for page in pages for m in page.members] == [
        ("0006", Status.SUSPECT)
    ]
    (page,) = taken(view, desk.leave("0009", admitted["0009"]))
    assert [(m.incarnation, m.status) for m in page.members] == [(admitted["0009"], Status.LEFT)]
    assert "0009" not in view.listed
    (page,) = taken(view, desk.join("0006", 7))
    successor = desk.state.members["0006"].incarnation
    assert [(m.incarnation, m.status) for m in page.members] == [(successor, Status.LIVE)]
    (answer,) = taken(view, ask(desk))
    assert (answer.members, answer.begins, answer.more) == ((), False, False)
    assert not sent(desk.handle(Ticked()), MembershipChanged)


def test_no_event_but_a_tick_goes_through_the_members() -> None:
    desk, admitted = crowd()
    view = SupervisorView()
    taken(view, ask(desk))
    memory = desk.state.memory
    memory.members = Unscanned(memory.members)
    memory.here[Role.LEARNER] = Unscanned(memory.here[Role.LEARNER])
    desk.hear(beat(admitted["0003"], "0003"), 4)
    ask(desk)
    desk.handle(LinkClosed(7))
    desk.join("0006", 7)
    desk.join("late", 4000)
    desk.leave("0009", admitted["0009"])
    desk.hear(beat(admitted["0009"], "0009"), 10)
    assert desk.status("late") is Status.LIVE


def test_a_syncer_that_was_away_is_sent_the_whole_view_with_those_that_ended() -> None:
    desk, admitted = crowd()
    view = SupervisorView()
    taken(view, ask(desk))
    desk.handle(LinkClosed(SYNCER_LINK))
    assert not sent(desk.handle(LinkClosed(3)), MembershipChanged)
    desk.leave("0009", admitted["0009"])
    pages = taken(view, ask(desk, SYNCER_LINK + 1))
    assert pages[0].begins
    assert names_of(pages) == list(admitted)
    assert "0009" not in view.listed
    assert view.complete


def test_who_ended_and_is_forgotten_is_in_no_view_that_begins_anew() -> None:
    desk, admitted = crowd(ENDED_REMEMBERED + 3)
    view = SupervisorView()
    taken(view, ask(desk))
    desk.handle(LinkClosed(SYNCER_LINK))
    for name in list(admitted)[1:]:
        desk.leave(name, admitted[name])
    assert len(view.listed) == len(admitted)
    taken(view, ask(desk, SYNCER_LINK + 1))
    assert view.complete
    assert list(view.listed) == ["0000"]
    assert len(desk.state.members) == ENDED_REMEMBERED + 2


def test_a_whole_crowd_that_ends_at_once_is_told_before_it_is_forgotten() -> None:
    desk, admitted = crowd()
    view = SupervisorView()
    told: list[str] = []
    for _ in range(6):
        told += names_of(taken(view, ask(desk)))
        desk.now_s += 0.9
        for page in taken(view, desk.handle(Ticked())):
            told += [member.name for member in page.members if member.status is Status.EVICTED]
    assert desk.evictions == CROWD
    assert set(told) >= set(admitted)
    assert not view.listed
    assert len(desk.state.memory.ended) == ENDED_REMEMBERED


def test_an_operator_is_told_of_hundreds_in_answers_that_fit_a_frame() -> None:
    desk, _ = crowd(prefix="n" * 60)
    for verb, target in ((Verb.STATUS, ""), (Verb.DRAIN, "nobody")):
        nonce = desk.state.memory.nonces.issue(desk.now_s)
        actions = desk.handle(CommandArrived(Command(verb, target, 1, nonce), 99, genuine=True))
        answers = sent(actions, CommandAnswer)
        for answer in answers:
            CODEC.encode(Envelope("supervisor", "operator", 1, answer))
        assert [answer.more for answer in answers] == [True] * (len(answers) - 1) + [False]
        assert len([one for answer in answers for one in answer.members]) == CROWD + 1
    assert f"and {CROWD - NAMES_MAX} more" in answers[0].told
