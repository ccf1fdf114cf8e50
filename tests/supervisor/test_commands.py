"""What an operator may ask the supervisor for."""

from dataclasses import replace

import pytest

from islands.protocol.identities import BLOCKED, LearnerName, Phase, Role, Status
from islands.protocol.invitations import Invitation, Invited
from islands.protocol.messages import membership as messages
from islands.protocol.messages.control import CommandAnswer, Drain, Verb
from islands.protocol.messages.membership import (
    Evicted,
    Joined,
    Leave,
    MembershipChanged,
    Refused,
    Stop,
)
from islands.protocol.sessions import Received
from islands.protocol.supervisor.actions import Revoke
from islands.protocol.supervisor.commands import NONCE_S, USED_MAX, Nonces
from islands.protocol.supervisor.events import LinkClosed, ProcessEnded, Revoked, RunDiverged
from islands.protocol.supervisor.eviction import drain_limit_s
from islands.protocol.supervisor.state import ADDED_MAX
from islands.protocol.tape.entry import Record
from islands.protocol.tape.member_entries import Admitted, Commanded
from tests.supervisor.desk import (
    TIMING,
    Desk,
    beat,
    killed,
    recorded,
    sent,
    started,
    syncer_beat,
)


def test_without_the_runs_key_nothing_is_done() -> None:
    desk = Desk()
    desk.admit("a")
    for verb in (Verb.DRAIN, Verb.EVICT):
        answer = desk.command(verb, "a", genuine=False)
        assert not answer.done
        assert "was not made for it with the run's key" in answer.told
        assert not answer.members
        assert recorded(desk.actions) == ["refused"]
    assert desk.status() is Status.LIVE


# --- nonces -------------------------------------------------------------------------------------


def test_a_command_that_is_not_signed_gets_a_nonce_and_leaves_no_trace() -> None:
    desk = Desk()
    for _ in range(3):
        answer = desk.command(Verb.STOP, nonce="", genuine=False)
        assert not answer.done
        assert "is not signed yet" in answer.told
        assert not recorded(desk.actions)
    assert desk.state.memory.stopping is None
    assert desk.command(Verb.STOP, nonce=answer.nonce).done


def test_a_nonce_is_good_once_whatever_the_command() -> None:
    desk = Desk()
    desk.admit("a")
    nonce = desk.state.memory.nonces.issue(desk.now_s)
    assert desk.command(Verb.PAUSE, nonce=nonce).done
    desk.command(Verb.RESUME)
    for verb in (Verb.PAUSE, Verb.STOP):
        answer = desk.command(verb, nonce=nonce)
        assert not answer.done
        assert "was sent before" in answer.told
        assert recorded(desk.actions) == ["refused"]
        assert answer.nonce not in ("", nonce)
    assert desk.state.memory.paused is False


def test_a_command_with_a_wrong_signature_uses_no_nonce_up() -> None:
    desk = Desk()
    nonce = desk.state.memory.nonces.issue(desk.now_s)
    assert not desk.command(Verb.PAUSE, nonce=nonce, genuine=False).nonce
    assert desk.command(Verb.PAUSE, nonce=nonce).done


@pytest.mark.parametrize("later_s", [NONCE_S, NONCE_S + 0.25])
def test_a_nonce_expires_by_the_clock_of_the_hub(later_s: float) -> None:
    desk = Desk()
    nonce = desk.state.memory.nonces.issue(desk.now_s)
    desk.wait(later_s)
    answer = desk.command(Verb.PAUSE, nonce=nonce)
    assert answer.done is (later_s == NONCE_S)
    if not answer.done:
        assert "signed up to 60 s ago by the clock of the hub, and may be 60 s old" in answer.told
        assert desk.command(Verb.PAUSE, nonce=answer.nonce).done


@pytest.mark.parametrize(
    "text", ["x", "1.0.", ".", "1.0.ab", "9" * 10_000, "1.0." + "0" * 64, "é.1.2"]
)
def test_what_is_no_nonce_of_this_start_is_refused(text: str) -> None:
    answer = Desk().command(Verb.PAUSE, nonce=text)
    assert not answer.done
    assert "another start of the hub" in answer.told


def test_a_flood_of_questions_for_nonces_costs_the_hub_nothing() -> None:
    desk = Desk()
    mine = desk.state.memory.nonces.issue(desk.now_s)
    for _ in range(3 * USED_MAX):
        desk.command(Verb.STOP, nonce="", genuine=False)
    assert not desk.state.memory.nonces.used
    assert desk.command(Verb.PAUSE, nonce=mine).done


def test_of_used_nonces_the_newest_are_kept_and_none_is_good_again() -> None:
    nonces = Nonces(b"of this start")
    given = [nonces.issue(0.0) for _ in range(USED_MAX + 3)]
    unused, *others = given
    assert [nonces.use(nonce, 0.0) for nonce in others] == [None] * len(others)
    assert len(nonces.used) == USED_MAX
    assert all(nonces.use(nonce, 0.0) for nonce in given)
    assert "or a later one instead of it" in str(nonces.use(unused, 0.0))


# --- invitations ----------------------------------------------------------------------------------

ANA = Invitation("ana", Invited.OPERATOR, 1000, 9000)


def test_the_tape_names_who_commanded() -> None:
    desk = Desk()
    for invitation, by in ((ANA, "ana"), (None, "operator")):
        assert desk.command(Verb.PAUSE, invitation=invitation).done
        (entry,) = [action.entry for action in desk.actions if isinstance(action, Record)]
        assert isinstance(entry, Commanded)
        assert (entry.by, entry.verb, entry.target) == (by, Verb.PAUSE, "")


@pytest.mark.parametrize("role", [Invited.LEARNER, Invited.OBSERVER])
def test_who_is_invited_as_another_sends_no_commands(role: Invited) -> None:
    desk = Desk()
    answer = desk.command(Verb.STOP, invitation=replace(ANA, role=role))
    assert not answer.done
    assert answer.told.startswith(f"the invitation of 'ana' is a {role}'s, which sends no commands")
    assert not answer.nonce
    assert desk.state.memory.stopping is None


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.SUPERVISOR])
def test_an_invitation_admits_the_role_that_it_names_alone(role: Role) -> None:
    desk = Desk()
    learner = replace(ANA, role=Invited.LEARNER)
    actions = desk.join("a", role=role, invitation=learner)
    if role is not Role.LEARNER:
        (refused,) = sent(actions, Refused)
        assert refused.reason == f"the invitation of 'ana' is a learner's, not a {role.value}'s"
        return
    (entry,) = [action.entry for action in actions if isinstance(action, Record)]
    assert isinstance(entry, Admitted)
    assert entry.invited == "ana"


def test_a_revocation_evicts_who_joined_by_it_and_nobody_else() -> None:
    desk = Desk()
    desk.admit("s", 9, role=Role.SYNCER)
    learner = replace(ANA, role=Invited.LEARNER)
    held = desk.admit("a", 1, invitation=learner)
    desk.admit("b", 2, invitation=replace(learner, name="ben"))
    desk.admit("c", 3)
    (wish,) = [action for action in desk.revoke("ana") if isinstance(action, Revoke)]
    assert wish == Revoke("ana", "operator", 99)
    revoked = {"ana": 2000}
    actions = desk.handle(Revoked("ana", "operator", 99, revoked, ""))
    (answer,) = sent(actions, CommandAnswer)
    assert answer.done
    assert answer.told == "all invitations of 'ana' until now are revoked; evicted a"
    assert {name for name, one in desk.state.members.items() if one.status.ended} == {"a"}
    assert [one.reason for one in sent(actions, Evicted)] == ["the invitation of 'ana' was revoked"]
    assert [one.retry for one in sent(actions, Refused)] == [False]
    assert recorded(actions) == ["evicted", "commanded"]
    again = desk.join("a", 1, invitation=learner, previous=held)
    assert [one.reason for one in sent(again, Refused)] == ["the invitation of 'ana' was revoked"]
    assert not desk.command(Verb.STATUS, invitation=ANA).done
    later = replace(learner, made_ms=2001)
    assert sent(desk.join("a", 1, invitation=later), Joined)


def test_a_syncer_is_told_of_all_revocations_over_each_new_link() -> None:
    desk = Desk()
    syncer = desk.admit("s", 9, role=Role.SYNCER)
    desk.hear(syncer_beat(syncer), 9)
    actions = desk.handle(Revoked("ana", "operator", 99, {"ana": 2000, "ben": 1}, ""))
    told = (("ana", 2000), ("ben", 1))
    assert [page.revoked for page in sent(actions, MembershipChanged) if page.revoked] == [told]
    later = desk.hear(syncer_beat(syncer), 9)
    assert not [page for page in sent(later, MembershipChanged) if page.revoked]
    anew = desk.hear(syncer_beat(syncer), 10)
    assert [page.revoked for page in sent(anew, MembershipChanged) if page.revoked] == [told]


@pytest.mark.parametrize(
    ("revoked", "failure", "told"),
    [
        ({"ana": 1}, "", "no member is here by one, so check the name"),
        ({"ana": 1}, "a full disk", "that ends with this start of the hub: a full disk"),
        ({}, "it invites nobody", "nobody's invitation is revoked: it invites nobody"),
    ],
)
def test_a_revocation_says_what_it_did_not_do(
    revoked: dict[str, int], failure: str, told: str
) -> None:
    (answer,) = sent(Desk().handle(Revoked("ana", "ben", 99, revoked, failure)), CommandAnswer)
    assert answer.done is (not failure)
    assert told in answer.told


@pytest.mark.parametrize("name", ["", "a b", "../a", "operator", "n" * 65, "ä"])
def test_a_name_that_nobody_has_is_not_revoked(name: str) -> None:
    answer = Desk().command(Verb.REVOKE, name)
    assert not answer.done
    assert answer.told.startswith("nobody is invited so: name is ")


def test_status_lists_members_of_all_roles() -> None:
    desk = Desk()
    a = desk.admit("a", 1)
    desk.admit("s", 2, role=Role.SYNCER)
    desk.admit("o", 3, role=Role.OBSERVER)
    desk.hear(beat(a, step=7, phase=Phase.STEPPING))
    desk.now_s += 0.5
    answer = desk.command(Verb.STATUS)
    assert answer.done
    assert answer.told == "run r goes on with 1 of 1 learners live"
    assert [(m.name, m.role) for m in answer.members] == [
        ("a", Role.LEARNER),
        ("o", Role.OBSERVER),
        ("s", Role.SYNCER),
    ]
    (learner, *_) = answer.members
    assert (learner.phase, learner.step, learner.silent_s) == (Phase.STEPPING, 7, 0.5)
    assert not recorded(desk.actions), "looking leaves no trace"


def test_a_syncer_that_cannot_write_its_journal_is_told_of() -> None:
    """Nothing is merged, while learners step on as if all were well."""
    desk = Desk()
    syncer = desk.admit("s", 9, role=Role.SYNCER)
    desk.hear(messages.Heartbeat(Role.SYNCER, "s", syncer, Phase.BLOCKED, 0, epoch=1), 9)
    told = desk.command(Verb.STATUS).told
    assert f"goes on, but {BLOCKED}," in told


def test_a_drained_learner_is_asked_to_leave_until_it_has_left() -> None:
    desk = Desk()
    a = desk.admit("a", 1)
    assert desk.command(Verb.DRAIN, "a").done
    assert len(sent(desk.actions, Drain)) == 1
    assert sent(desk.hear(beat(a)), Drain)
    desk.handle(LinkClosed(1))
    assert sent(desk.hear(beat(a), 2), Drain)
    desk.leave("a", a, "drained")
    assert desk.status() is Status.LEFT


@pytest.mark.parametrize("leaves", [True, False])
def test_a_drained_process_is_not_started_again(leaves: bool) -> None:  # noqa: FBT001
    desk = Desk(launched=("a",))
    a = desk.admit("a", 1)
    desk.command(Verb.DRAIN, "a")
    if leaves:
        desk.leave("a", a, "drained")
    assert not started(desk.handle(ProcessEnded("a", "" if leaves else "killed (9)")))


def test_a_drained_learner_that_somebody_starts_again_may_stay() -> None:
    desk = Desk(launched=("a",))
    a = desk.admit("a", 1)
    desk.command(Verb.DRAIN, "a")
    again = desk.admit("a", 1, previous=a)
    assert sent(desk.hear(beat(again)), Drain)
    desk.leave("a", again, "drained")
    third = desk.admit("a", 2)
    assert not sent(desk.hear(beat(third), 2), Drain)
    assert started(desk.handle(ProcessEnded("a", "killed (9)"))) == ["a"]


def test_a_drained_learner_that_begins_again_by_itself_is_drained_still() -> None:
    desk = Desk(launched=("a",))
    a = desk.admit("a", 1)
    desk.command(Verb.DRAIN, "a")
    desk.handle(Received(Leave(LearnerName("a"), a, "not finite", diverged=True), 0))
    again = desk.admit("a", 1, previous=a)
    assert sent(desk.hear(beat(again)), Drain)
    assert desk.evictions == 0, "nobody ended it against its will"


def test_a_drain_that_is_not_obeyed_evicts() -> None:
    desk = Desk(launched=("a",))
    a = desk.admit("a", 1)
    desk.command(Verb.DRAIN, "a")
    limit_s = drain_limit_s(TIMING)
    assert not killed(desk.wait(limit_s - 0.5, beat(a)))
    assert desk.status() is Status.LIVE
    desk.command(Verb.DRAIN, "a")  # said again, it gives no more time
    actions = desk.wait(0.5, beat(a))
    assert desk.status() is Status.EVICTED
    assert killed(actions) == ["a"]
    assert f"did not leave within {limit_s:g} s" in sent(actions, Evicted)[0].reason
    assert not started(desk.handle(ProcessEnded("a", "killed by SIGKILL (9)")))


def test_a_process_that_takes_the_name_of_a_drained_one_has_its_own_time_to_leave() -> None:
    desk = Desk()
    desk.admit("a", 1)
    desk.command(Verb.DRAIN, "a")
    desk.wait(drain_limit_s(TIMING) - 1)
    assert desk.status() is Status.EVICTED
    second = desk.admit("a")
    assert sent(desk.wait(2.0, beat(second)), Drain)
    assert desk.status() is Status.LIVE
    desk.wait(drain_limit_s(TIMING), beat(second))
    assert desk.status() is Status.EVICTED


def test_our_own_pause_gives_a_drained_learner_more_time() -> None:
    desk = Desk()
    a = desk.admit("a", 1)
    desk.command(Verb.DRAIN, "a")
    desk.now_s += 100.0
    desk.wait(1, beat(a))
    assert desk.status() is Status.LIVE


@pytest.mark.parametrize("launched", [True, False])
def test_an_evicted_learner_ends_at_once(launched: bool) -> None:  # noqa: FBT001
    desk = Desk(launched=("a",) if launched else ())
    desk.hear(syncer_beat(desk.admit("s", 9, role=Role.SYNCER)), 9)
    a = desk.admit("a", 1)
    answer = desk.command(Verb.EVICT, "a")
    assert answer.done
    assert answer.told.startswith("a is evicted")
    assert answer.told.endswith("it was the last one: nothing is trained now")
    assert [word.incarnation for word in sent(desk.actions, Evicted)] == [a]
    (page,) = sent(desk.actions, MembershipChanged)
    assert [member.status for member in page.members] == [Status.EVICTED]
    assert killed(desk.actions) == ["a"] * launched
    assert not started(desk.handle(ProcessEnded("a", "killed by SIGKILL (9)")))
    assert sent(desk.hear(beat(a)), Evicted)


def test_an_evicted_process_may_not_come_back_and_a_new_one_may() -> None:
    desk = Desk()
    a = desk.admit("a", 1)
    desk.command(Verb.EVICT, "a")
    (word,) = sent(desk.join("a", 1, previous=a), messages.Refused)
    assert not word.retry
    assert word.reason == "evicted by an operator; start it again if it is to take part"
    again = desk.admit("a", 2)
    assert not sent(desk.hear(beat(again), 2), Drain)
    assert desk.status() is Status.LIVE


@pytest.mark.parametrize("verb", [Verb.DRAIN, Verb.EVICT])
def test_who_is_not_here_cannot_be_drained(verb: Verb) -> None:
    desk = Desk()
    gone = desk.admit("gone", 1)
    desk.admit("a", 2)
    desk.admit("b", 3)
    desk.admit("s", 4, role=Role.SYNCER)
    desk.leave("gone", gone, "enough")
    for target in ("gone", "s", "c"):
        answer = desk.command(verb, target)
        assert not answer.done
        assert answer.told == f"there is no learner {target!r} here; the learners are: a, b"


def test_learners_are_added_under_the_next_free_numbers() -> None:
    desk = Desk(launched=("syncer", "learner-0", "learner-2"))
    desk.admit("learner-3", 5)
    answer = desk.command(Verb.ADD, count=2)
    assert answer.done
    assert answer.told == "started learner-1, learner-4"
    assert started(desk.actions) == ["learner-1", "learner-4"]
    assert started(desk.handle(ProcessEnded("learner-4", "killed (9)"))) == ["learner-4"]


@pytest.mark.parametrize("count", [0, -1, ADDED_MAX + 1])
def test_too_many_learners_are_not_added(count: int) -> None:
    desk = Desk(launched=("learner-0",))
    answer = desk.command(Verb.ADD, count=count)
    assert not answer.done
    assert f"it must be 1 to {ADDED_MAX}" in answer.told
    assert not started(desk.actions)


def test_where_nothing_is_launched_a_learner_is_started_by_hand() -> None:
    answer = Desk().command(Verb.ADD)
    assert not answer.done
    assert "islands join --supervisor ws://hub:7070/supervisor" in answer.told


def test_a_pause_reaches_the_syncer_with_the_view() -> None:
    """It is told at once, and with every heartbeat; nothing is said before there was a command."""
    desk = Desk(epoch=2)
    syncer = syncer_beat(desk.admit("s", 9, role=Role.SYNCER))
    (view,) = sent(desk.hear(syncer, 9), MembershipChanged)
    assert view.paused is None
    for verb, paused in ((Verb.RESUME, False), (Verb.PAUSE, True), (Verb.RESUME, False)):
        assert desk.command(verb).done, "a restarted supervisor can resume, too"
        assert [view.paused for view in sent(desk.actions, MembershipChanged)] == [paused]
        assert recorded(desk.actions) == ["commanded"]
        (view,) = sent(desk.hear(syncer, 9), MembershipChanged)
        assert view.paused is paused


def test_a_run_that_diverged_is_paused_by_nobodys_command_until_an_operator_resumes_it() -> None:
    desk = Desk()
    desk.hear(syncer_beat(desk.admit("s", 9, role=Role.SYNCER)), 9)
    for told in ([True], []):
        actions = desk.handle(RunDiverged())
        assert [view.paused for view in sent(actions, MembershipChanged)] == told
        assert recorded(actions) == []
    assert desk.command(Verb.RESUME).done
    assert [view.paused for view in sent(desk.actions, MembershipChanged)] == [False]


def test_pausing_twice_is_pausing_once() -> None:
    desk = Desk()
    desk.hear(syncer_beat(desk.admit("s", 9, role=Role.SYNCER)), 9)
    desk.command(Verb.PAUSE)
    assert desk.command(Verb.PAUSE).told == "the run is paused already"
    assert not sent(desk.actions, MembershipChanged)
    assert desk.command(Verb.STATUS).told.startswith("run r is paused")


def test_stop_asks_the_syncer_for_a_proper_end() -> None:
    desk = Desk()
    syncer = desk.admit("s", 9, role=Role.SYNCER)
    assert "closes the last rounds" in desk.command(Verb.STOP, "the money is spent").told
    (stop,) = sent(desk.actions, Stop)
    desk.command(Verb.STOP)
    assert sent(desk.actions, Stop) == [stop] == [Stop("the money is spent")]
    assert sent(desk.hear(syncer_beat(syncer, epoch=2), 9), Stop) == [stop]
    assert desk.state.finished is None
    desk.handle(Received(stop, 9))
    assert desk.state.finished == stop.reason


def test_without_a_syncer_the_end_waits_for_one() -> None:
    desk = Desk()
    answer = desk.command(Verb.STOP)
    assert "as soon as it is back" in answer.told
    syncer = desk.admit("s", 9, role=Role.SYNCER)
    assert sent(desk.hear(syncer_beat(syncer), 9), Stop)


@pytest.mark.parametrize("verb", list(Verb))
def test_a_finished_run_takes_no_commands(verb: Verb) -> None:
    desk = Desk(launched=("learner-0",))
    desk.admit("s", 9, role=Role.SYNCER)
    desk.stop("tokens", 9)
    answer = desk.command(verb, "learner-0")
    assert answer.told == "the run is over: tokens"
    assert answer.done is (verb is Verb.STATUS)
    assert not started(desk.actions)
