"""Which standby may be the syncer, and which syncer may not come back after that."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Incarnation, Phase, Role, Status
from islands.protocol.messages.membership import (
    Evicted,
    Heartbeat,
    Joined,
    MembershipChanged,
    Refused,
)
from islands.protocol.supervisor.actions import KeepPromoted
from islands.protocol.tape.entry import Record
from islands.protocol.tape.member_entries import Promoted
from tests.supervisor.desk import Desk, recorded, sent

OLD, ONE, TWO = "syncer", "sb1", "sb2"


def beat(role: Role, name: str, incarnation: Incarnation) -> Heartbeat:
    return Heartbeat(role, name, incarnation, Phase.MERGING, 0, epoch=1, address=f"ws://{name}")


class Run:
    """A desk with a syncer and two standbys that follow it."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.old = self.desk.admit(OLD, 1, role=Role.SYNCER)
        self.standbys = {
            name: self.desk.admit(name, link, role=Role.STANDBY)
            for link, name in ((2, ONE), (3, TWO))
        }
        self.desk.hear(beat(Role.SYNCER, OLD, self.old))

    def lose_syncer(self) -> None:
        """Let the syncer be silent for so long that it is evicted."""
        followers = [beat(Role.STANDBY, *each) for each in self.standbys.items()]
        self.desk.wait(60, *followers)
        assert self.desk.status(OLD) is Status.EVICTED

    def claim(self, name: str, takes_over: str = OLD) -> str:
        """A standby asks to be the syncer; returns the refusal, empty if it may."""
        link = 2 if name == ONE else 3
        found = self.desk.join(name, link, role=Role.SYNCER, takes_over=takes_over)
        refusals = [each.reason for each in sent(found, Refused)]
        assert len(refusals) + len(sent(found, Joined)) == 1
        return "".join(refusals)


def test_a_standby_takes_over_once_no_syncer_lives() -> None:
    run = Run()
    assert run.claim(ONE) == "the run's syncer 'syncer' is alive"
    run.lose_syncer()
    found = run.desk.join(ONE, 2, role=Role.SYNCER, takes_over=OLD)
    entries = [each.entry for each in found if isinstance(each, Record)]
    assert Promoted(ONE, OLD) in entries
    assert KeepPromoted(ONE) in found
    assert run.desk.state.memory.promoted == ONE
    assert (run.desk.status(ONE), run.desk.state.members[ONE].role) == (Status.LIVE, Role.SYNCER)


def test_the_syncer_of_a_hub_that_lives_is_not_replaced() -> None:
    run = Run()
    run.desk.state.memory.own_syncer = True
    run.lose_syncer()
    assert run.claim(ONE).startswith("the run's syncer is a part of its hub, which lives")


def test_no_standby_takes_over_as_a_supervisor_has_just_begun() -> None:
    desk = Desk()
    desk.state.memory.began_s = 0.0
    desk.admit(ONE, 2, role=Role.STANDBY)
    (refusal,) = sent(desk.join(ONE, 2, role=Role.SYNCER, takes_over=OLD), Refused)
    assert "may be about to return" in refusal.reason
    desk.wait(60)
    assert sent(desk.join(ONE, 2, role=Role.SYNCER, takes_over=OLD), Joined) != []


def test_a_silent_syncer_is_evicted_as_another_takes_over() -> None:
    run = Run()
    standbys = [beat(Role.STANDBY, *each) for each in run.standbys.items()]
    run.desk.wait(3, *standbys)
    assert run.claim(ONE).startswith("this supervisor has begun just now")
    run.desk.wait(30, beat(Role.SYNCER, OLD, run.old), *standbys)
    run.desk.wait(3, *standbys)
    assert run.desk.status(OLD) is Status.SUSPECT
    assert run.claim(ONE) == ""
    assert run.desk.status(OLD) is Status.EVICTED


def test_of_two_promotions_at_once_one_is_refused() -> None:
    run = Run()
    run.lose_syncer()
    assert run.claim(ONE) == ""
    assert run.claim(TWO) == "the run's syncer 'sb1' is alive"
    run.desk.wait(60)
    assert run.claim(TWO) == "its copy is of 'syncer', and the run has gone on with 'sb1' since"
    assert run.claim(TWO, takes_over=ONE) == ""


def test_the_old_syncer_may_not_come_back() -> None:
    run = Run()
    run.lose_syncer()
    assert run.claim(ONE) == ""
    found = run.desk.join(OLD, 9, role=Role.SYNCER)
    (refusal,) = sent(found, Refused)
    assert "goes on with the syncer 'sb1'" in refusal.reason
    assert not refusal.retry
    run.desk.wait(60)
    assert sent(run.desk.join(OLD, 9, role=Role.SYNCER), Refused) != []
    assert sent(run.desk.join(ONE, 10, role=Role.SYNCER), Joined) != []  # it is restarted


def test_a_promotion_that_was_granted_may_be_asked_for_again() -> None:
    run = Run()
    run.lose_syncer()
    assert run.claim(ONE) == ""
    run.desk.wait(60)
    assert run.claim(ONE) == ""


def follows(run: Run, name: str, phase: Phase, step: int) -> None:
    """Let a standby say whether it follows the syncer, and the number of its newest record."""
    incarnation, link = run.standbys[name], 2 if name == ONE else 3
    said = replace(beat(Role.STANDBY, name, incarnation), phase=phase, step=step)
    run.desk.hear(said, link)


def test_the_newest_copy_counts_once_nobody_follows_the_syncer() -> None:
    run = Run()
    run.lose_syncer()
    follows(run, ONE, Phase.HEALING, 7)
    follows(run, TWO, Phase.OBSERVING, 7)
    assert run.claim(ONE) == "the standby 'sb2' follows the run's syncer"
    follows(run, TWO, Phase.HEALING, 8)
    assert run.claim(ONE) == "the copy of the standby 'sb2' is newer"
    follows(run, ONE, Phase.HEALING, 8)
    assert run.claim(ONE) == ""


def test_a_claim_that_is_refused_may_be_made_again() -> None:
    run = Run()
    (refusal,) = sent(run.desk.join(ONE, 2, role=Role.SYNCER, takes_over=OLD), Refused)
    assert refusal.retry


def test_a_supervisor_that_restarted_recognises_no_syncer_that_was_passed_over() -> None:
    desk = Desk(epoch=2)
    desk.state.memory.promoted = ONE
    (evicted,) = sent(desk.hear(beat(Role.SYNCER, OLD, Incarnation(1, 1))), Evicted)
    assert evicted.name == OLD
    assert OLD not in desk.state.members
    desk.hear(beat(Role.SYNCER, ONE, Incarnation(1, 4)), 2)
    assert desk.status(ONE) is Status.LIVE


def test_a_standby_that_was_promoted_is_none_any_more() -> None:
    run = Run()
    run.lose_syncer()
    assert run.claim(ONE) == ""
    run.desk.wait(60)
    (refusal,) = sent(run.desk.join(ONE, 2, role=Role.STANDBY), Refused)
    assert "died before it could go on" in refusal.reason
    assert not refusal.retry


@pytest.mark.parametrize("role", [Role.SYNCER, Role.STANDBY])
def test_who_lacks_the_key_neither_follows_nor_takes_over(role: Role) -> None:
    desk = Desk()
    desk.proven = False
    (refusal,) = sent(desk.join("sb", 1, role=role, takes_over=OLD), Refused)
    assert refusal.reason.startswith(f"the {role.value} 'sb' does not hold this run's key")
    assert desk.state.memory.promoted is None


def test_a_standby_hears_of_revocations() -> None:
    run = Run()
    run.desk.state.memory.revoked = {"ben": 5}
    actions = run.desk.hear(beat(Role.STANDBY, ONE, run.standbys[ONE]), 2)
    told = [each.revoked for each in sent(actions, MembershipChanged) if each.revoked]
    assert told == [(("ben", 5),)]
    assert "admitted" not in recorded(actions)
