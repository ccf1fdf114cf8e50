"""Signed admissions: what opens a syncer's door, and what does not."""

import pytest

from islands.protocol.identities import Incarnation, Role
from islands.protocol.membership import KEY_BYTES_MIN, Credentials

OURS = Credentials("run", bytes(range(32)))
ONE = Incarnation(1, 1)


def test_what_was_signed_is_genuine_also_to_others_with_the_key() -> None:
    credential = OURS.sign("a", ONE)
    assert Credentials("run", bytes(range(32))).genuine("a", ONE, credential)
    for role in Role:
        assert OURS.genuine("a", ONE, credential, role) is (role is Role.LEARNER)


@pytest.mark.parametrize(
    ("name", "incarnation", "run", "key"),
    [
        ("b", ONE, "run", bytes(range(32))),
        ("a", Incarnation(1, 2), "run", bytes(range(32))),
        ("a", Incarnation(2, 1), "run", bytes(range(32))),
        ("a", Incarnation(11, 1), "run", bytes(range(32))),
        ("a", ONE, "another", bytes(range(32))),
        ("a", ONE, "run", bytes(32)),
    ],
)
def test_it_is_good_for_one_name_one_incarnation_one_run(
    name: str, incarnation: Incarnation, run: str, key: bytes
) -> None:
    assert not OURS.genuine(name, incarnation, Credentials(run, key).sign("a", ONE))


@pytest.mark.parametrize("credential", ["", "x", "0" * 64, "ü" * 64, "\0", "A" * 1_000_000])
def test_what_nobody_signed_is_refused(credential: str) -> None:
    assert not OURS.genuine("a", ONE, credential)


def test_parts_cannot_run_into_one_another() -> None:
    key = bytes(32)
    one = Credentials("run", key).sign("a", ONE)
    assert one != Credentials("runa", key).sign("", ONE)
    assert one != Credentials("ru", key).sign("na", ONE)


def test_an_epoch_is_proven_by_who_holds_the_key() -> None:
    proof = OURS.prove_epoch(7, "5eed")
    assert OURS.epoch_proven(7, proof)
    assert proof != OURS.prove_epoch(7, "0ther")
    assert not OURS.epoch_proven(10**6, proof)
    assert not OURS.epoch_proven(7, Credentials("run", bytes(32)).prove_epoch(7, "5eed"))
    for made_up in ("", ".", "x", "5eed." + OURS.sign("a", ONE), "\0.\0", "é" * 1000):
        assert not OURS.epoch_proven(7, made_up)


def test_the_epoch_of_a_supervisor_is_no_syncers() -> None:
    assert OURS.supervisor_proven(7, OURS.prove_supervisor(7))
    for proof in ("", OURS.prove_epoch(7, ""), OURS.prove_epoch(7, "5eed"), OURS.prove("7")):
        assert not OURS.supervisor_proven(7, proof)
    assert not OURS.supervisor_proven(8, OURS.prove_supervisor(7))
    assert not OURS.supervisor_proven(7, Credentials("run", bytes(32)).prove_supervisor(7))


def test_another_start_is_told_from_this_one_and_from_earlier_ones() -> None:
    own = 7, OURS.prove_epoch(7, "5eed")
    shown = {
        (7, OURS.prove_epoch(7, "5eed")): False,
        (7, OURS.prove_epoch(7, "0ther")): True,
        (8, OURS.prove_epoch(8, "0ther")): True,
        (6, OURS.prove_epoch(6, "0ther")): False,
        (8, OURS.prove_epoch(7, "0ther")): False,
        (7, ""): False,
    }
    assert {seen: OURS.another_start(seen, own) for seen in shown} == shown


def test_what_holds_for_one_beginning_of_a_run_holds_for_no_other() -> None:
    one, other = (Credentials("run", bytes(range(32)), begun) for begun in ("a1", "b2"))
    assert one.genuine("a", ONE, one.sign("a", ONE))
    assert not other.genuine("a", ONE, one.sign("a", ONE))
    assert not other.supervisor_proven(7, one.prove_supervisor(7))
    assert not other.epoch_proven(7, one.prove_epoch(7, "5eed"))
    assert not other.another_start((7, one.prove_epoch(7, "5eed")), (1, other.prove_epoch(1, "a")))
    pair = ("a", ONE), ("b", Incarnation(1, 2))
    assert other.prove_pair(*pair) != one.prove_pair(*pair)
    assert other.proven("syncer", one.prove("syncer"))
    assert other.mark() == one.mark()


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="the run's key has 15 bytes, fewer than 16"):
        Credentials("run", bytes(KEY_BYTES_MIN - 1))


def test_a_key_is_not_shown() -> None:
    assert "00010203" not in repr(OURS)
    assert OURS.sign("a", ONE) not in repr(OURS)


def test_only_the_key_proves_that_one_holds_it() -> None:
    assert OURS.proven("syncer", OURS.prove("syncer"))
    assert not OURS.proven("syncer", OURS.prove("syncer-2"))
    assert not OURS.proven("syncer", OURS.sign("syncer", Incarnation(0, 0)))
    assert not OURS.proven("syncer", Credentials("run", bytes(32)).prove("syncer"))
