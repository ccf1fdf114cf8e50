"""Who may have a name, and who takes it from whom."""

import pytest

from islands.protocol.identities import Role, Status, wrong_name
from islands.protocol.messages.membership import Joined, Refused
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.protocol.supervisor.memory import ENDED_REMEMBERED
from messaging.codec.frames import Codec
from messaging.envelope import Envelope
from tests.supervisor.desk import Desk, sent


@pytest.mark.parametrize("name", ["a", "A-1", "learner-0", "host.example_2", "x" * 64, "7"])
def test_names_of_letters_digits_and_three_signs_are_names(name: str) -> None:
    assert wrong_name(name, Role.LEARNER) is None
    assert sent(Desk().join(name), Joined)


@pytest.mark.parametrize(
    "name",
    [
        *("", "x" * 65, "[/x]", "a b", "a\nb", "a\0b", "\x1b[2J", "\x1b]0;x\x07", "../x", ".x"),
        *("-x", "a\u202eb", "a\u200bb", "\u00e4", "a/b", "\U0001f4a9"),
    ],
)
def test_no_other_name_is_admitted(name: str) -> None:
    for role in Role:
        assert wrong_name(name, role) is not None
    (refused,) = sent(Desk().join(name), Refused)
    assert not refused.retry
    assert refused.reason.isprintable()


@pytest.mark.parametrize(
    "name", ["supervisor", "syncer", "observer", "operator", "Syncer", "SUPERVISOR"]
)
def test_names_of_roles_are_theirs(name: str) -> None:
    """A learner called `syncer` kept the syncer out once that one was silent: the run ended."""
    for role in Role:
        assert (wrong_name(name, role) is None) is (name.lower() == role.value)
    desk = Desk()
    (refused,) = sent(desk.join(name), Refused)
    assert "reserved" in refused.reason
    assert sent(desk.join("syncer", 2, role=Role.SYNCER), Joined)


def test_a_name_of_another_role_is_not_taken_over() -> None:
    desk = Desk()
    desk.admit("s", role=Role.SYNCER)
    desk.wait(4)
    assert desk.status("s") is Status.SUSPECT
    (refused,) = sent(desk.join("s", 2), Refused)
    assert (refused.retry, desk.status("s")) == (False, Status.SUSPECT)
    assert "that of a syncer" in refused.reason


def test_a_syncer_takes_its_name_from_a_learner() -> None:
    desk = Desk()
    desk.admit("s", 1)
    assert sent(desk.join("s", 2, role=Role.SYNCER), Joined)
    assert desk.state.members["s"].role is Role.SYNCER


@pytest.mark.parametrize("away_s", [4, 6], ids=["suspect", "evicted"])
def test_a_name_taken_in_its_owners_absence_stays_with_the_later_process(away_s: int) -> None:
    desk = Desk()
    owner = desk.admit("a", 1)
    desk.wait(away_s)
    other = desk.admit("a", 2)
    (refused,) = sent(desk.join("a", 3, previous=owner), Refused)
    assert refused.retry
    assert desk.state.members["a"].incarnation == other
    desk.wait(4)
    assert desk.admit("a", 3, previous=owner) > other


def test_a_join_that_comes_twice_changes_nothing_the_second_time() -> None:
    desk = Desk()
    first = desk.admit("a", 1)
    second = desk.admit("a", 2, previous=first)
    third = desk.admit("a", 3, previous=second)
    (refused,) = sent(desk.join("a", 2, previous=first), Refused)
    assert refused.retry
    assert desk.state.members["a"].incarnation == third


def test_names_that_differ_in_case_only_are_refused() -> None:
    """Their folders would be one folder on a disk that does not tell them apart."""
    desk = Desk(launched=("Learner-0",))
    desk.admit("ana", 1)
    for name, known in (("Ana", "ana"), ("ANA", "ana"), ("learner-0", "Learner-0")):
        (refused,) = sent(desk.join(name, 2), Refused)
        assert not refused.retry
        assert f"{known!r} is here, which differs from it in case only" in refused.reason
    assert desk.admit("Learner-0", 3) in {m.incarnation for m in desk.state.members.values()}


def test_a_name_is_free_again_once_it_is_forgotten() -> None:
    desk = Desk()
    for index in range(2 * ENDED_REMEMBERED):
        desk.admit(f"n{index}")
        desk.wait(6)
    assert not sent(desk.join("N0"), Refused)
    (refused,) = sent(desk.join("N60"), Refused)
    assert "in case only" in refused.reason


def test_nobody_is_admitted_as_a_supervisor() -> None:
    """The token alone would make a process one; a supervisor asks nobody."""
    desk = Desk()
    for proven in (True, False):
        desk.proven = proven
        (refused,) = sent(desk.join("supervisor", role=Role.SUPERVISOR), Refused)
        assert "a supervisor asks nobody for admission" in refused.reason
    assert not desk.state.members


@pytest.mark.parametrize("field", ["run", "fingerprint"])
@pytest.mark.parametrize("text", ["\0", "x", "\u2028"])
def test_a_refusal_can_be_sent_whatever_it_refuses(field: str, text: str) -> None:
    changed: dict[str, object] = {field: text * 60_000}
    (refused,) = sent(Desk().join("a", 1, **changed), Refused)
    assert Codec(MESSAGE_TYPES).encode(Envelope("supervisor", "a", 1, refused))
    assert len(refused.reason) < 1000
