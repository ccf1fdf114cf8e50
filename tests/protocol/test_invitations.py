"""Invitations and signatures: what the holder of each can do, and what is refused."""

from dataclasses import replace

import pytest

from islands.protocol.invitations import (
    DAY_S,
    DAYS_MAX,
    REVOKED_MAX,
    Invitation,
    Invitations,
    Invited,
    is_signed,
    parted,
    role_of,
    signed,
    signing_secret,
)
from islands.protocol.membership import Credentials
from islands.protocol.messages.control import Command, Verb

KEY = bytes(range(32))
OURS = Credentials("run", KEY)
NOW_S = 1_800_000_000.25


def made(role: Invited = Invited.LEARNER, *, name: str = "ana", days: int = 30) -> str:
    return parted(Invitations("run", OURS).make(name, role, days, NOW_S))[0]


@pytest.mark.parametrize("role", list(Invited))
def test_the_key_knows_an_invitation_again(role: Invited) -> None:
    known = Invitations("run", Credentials("run", KEY, "another beginning")).judge(
        made(role), NOW_S
    )
    assert known == Invitation("ana", role, 1_800_000_000_250, 1_800_000_000 + 30 * DAY_S)


@pytest.mark.parametrize("run", ["run", "my run: two", "Ägäis/1"])
def test_any_run_can_invite(run: str) -> None:
    invitations = Invitations(run, Credentials(run, KEY))
    token = invitations.make("ana", Invited.LEARNER, 1, NOW_S)
    assert token.isascii()
    assert " " not in token
    assert isinstance(invitations.judge(token, NOW_S), Invitation)


@pytest.mark.parametrize("token", ["", "a-token-that-all-share", "invitations:a", ":" * 6])
def test_a_token_that_is_no_invitation_is_not_judged(token: str) -> None:
    assert Invitations("run", OURS).judge(token, NOW_S) is None


def test_an_invitation_ends_at_its_time() -> None:
    invitations, ends_s = Invitations("run", OURS), NOW_S - 0.25 + DAYS_MAX * DAY_S
    token = made(days=DAYS_MAX)
    assert isinstance(invitations.judge(token, ends_s - 0.001), Invitation)
    assert invitations.judge(token, ends_s) == (
        "the invitation of 'ana' expired 0 seconds ago by the hub's clock: ask for another"
    )
    assert "expired 3 days ago" in str(invitations.judge(token, ends_s + 3 * DAY_S))


def test_a_clock_that_is_set_back_locks_nobody_out_and_a_wrong_one_is_told_of() -> None:
    invitations = Invitations("run", OURS)
    assert isinstance(invitations.judge(made(), NOW_S - DAY_S), Invitation)
    assert invitations.judge(made(), NOW_S - 3 * DAY_S) == (
        "the invitation of 'ana' is made 3 days from now by the hub's clock: set the clocks"
    )


def test_an_invitation_of_another_run_or_key_is_told_of() -> None:
    other = Invitations("other", Credentials("other", KEY)).judge(made(), NOW_S)
    assert other == "the invitation is of another run, or damaged"
    stranger = Invitations("run", Credentials("run", bytes(32))).judge(made(), NOW_S)
    assert "made with another key than the run's" in str(stranger)


def test_an_invitation_with_any_other_character_is_damaged() -> None:
    token, invitations = made(), Invitations("run", OURS)
    for index in range(len("invitation:"), len(token)):
        for character in ("x", ":", "é", "\udc80", "0" if token[index] == "1" else "1"):
            if token[index] == character:
                continue
            changed = token[:index] + character + token[index + 1 :]
            assert "damaged" in str(invitations.judge(changed, NOW_S)), changed
    for end in range(len("invitation"), len(token)):
        assert "damaged" in str(invitations.judge(token[:end], NOW_S))
    operators = Invitations("run", OURS).make("ana", Invited.OPERATOR, 30, NOW_S)
    assert "damaged" in str(invitations.judge(operators, NOW_S)), "nobody shows the secret"


def test_a_role_is_not_changed_by_its_holder() -> None:
    forged = made().replace(":learner:", ":operator:")
    assert "damaged" in str(Invitations("run", OURS).judge(forged, NOW_S))


# --- revocations ----------------------------------------------------------------------------------


def test_a_revocation_ends_what_was_made_before_it() -> None:
    invitations = Invitations("run", OURS)
    tokens = [made(role) for role in Invited]
    other = made(name="ana-2")
    assert invitations.revoke("ana", NOW_S) is None
    for token in tokens:
        assert invitations.judge(token, NOW_S) == "the invitation of 'ana' was revoked"
    assert isinstance(invitations.judge(other, NOW_S), Invitation)


@pytest.mark.parametrize("passed_s", [0.0, 0.5, 2.0 * DAY_S, -0.5, -2.0 * DAY_S])
def test_who_was_revoked_can_be_invited_and_revoked_again(passed_s: float) -> None:
    invitations, now_s = Invitations("run", OURS), NOW_S
    for _ in range(3):
        before = invitations.make("ana", Invited.LEARNER, 30, now_s)
        ahead = Invitations("run", OURS).make("ana", Invited.LEARNER, 30, now_s + DAY_S)
        invitations.revoke("ana", now_s)
        now_s += passed_s
        after = invitations.make("ana", Invited.LEARNER, 30, now_s)
        for token in (before, ahead):
            assert invitations.judge(token, now_s) == "the invitation of 'ana' was revoked"
        assert isinstance(invitations.judge(after, now_s), Invitation)


def test_revocations_are_bounded_and_forgotten_once_nothing_is_left_to_revoke() -> None:
    invitations = Invitations("run", OURS)
    for number in range(REVOKED_MAX):
        assert invitations.revoke(f"name-{number}", NOW_S) is None
    assert "512 names are revoked already" in str(invitations.revoke("one-more", NOW_S))
    assert invitations.revoke("name-7", NOW_S + 1) is None
    assert invitations.revoke("one-more", NOW_S + (DAYS_MAX + 3) * DAY_S) is None
    assert list(invitations.revoked) == ["one-more"]


# --- signatures -----------------------------------------------------------------------------------

COMMAND = Command(Verb.DRAIN, "learner-1", 1)


def test_an_operators_secret_is_in_the_file_alone_and_the_hub_has_it_too() -> None:
    invitations = Invitations("run", OURS)
    text = invitations.make("ana", Invited.OPERATOR, 30, NOW_S)
    shown, secret = parted(text)
    known = invitations.judge(shown, NOW_S)
    assert isinstance(known, Invitation)
    assert secret not in shown
    assert signing_secret(OURS, known) == secret
    assert is_signed(signed(COMMAND, "nonce", secret), signing_secret(OURS, known))
    assert role_of(text) == role_of(shown) == "operator"


@pytest.mark.parametrize("role", [Invited.LEARNER, Invited.OBSERVER])
def test_nobody_else_has_a_secret(role: Invited) -> None:
    token = Invitations("run", OURS).make("ana", role, 30, NOW_S)
    assert parted(token) == (token, "")


def test_each_secret_signs_for_its_own_invitation() -> None:
    ana = Invitation("ana", Invited.OPERATOR, 1, 2)
    others = (None, replace(ana, name="ben"), replace(ana, made_ms=3), replace(ana, until_s=3))
    secrets = {signing_secret(OURS, one) for one in (ana, *others)}
    assert len(secrets) == 1 + len(others)
    assert signing_secret(Credentials("run", bytes(32)), ana) not in secrets
    assert not is_signed(signed(COMMAND, "n", signing_secret(OURS)), signing_secret(OURS, ana))


def test_no_signature_fits_another_command_whose_parts_are_the_same_text() -> None:
    """The hub that gives the nonce may be no hub, and want a signature for another command."""
    one = signed(Command(Verb.STATUS, "", 1), "n", "secret")
    for other in (
        Command(Verb.STOP, "", 1, "n"),
        Command(Verb.STATUS, "1", 1, "n"),
        Command(Verb.STATUS, "", 11, "n"),
        Command(Verb.STATUS, "", 1, "1:n"),
        Command(Verb.STATUS, "1:1", 1, "n"),
    ):
        assert not is_signed(replace(other, signature=one.signature), "secret")
    assert is_signed(one, "secret")
    assert not is_signed(replace(one, signature=""), "secret")
