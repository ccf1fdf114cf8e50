"""A learner's account of one fragment: merged, overwritten, pending, in doubt."""

import pytest

from islands.protocol.identities import FragmentIndex, Version
from islands.protocol.learner.account import Account
from islands.protocol.messages.training import FragmentProgress, FragmentUpdate, Merged


def update(
    number: int, round_: int, merged: Merged | None = None, epoch: int = 1
) -> FragmentUpdate:
    """An update to version `epoch.number`, made by a round."""
    version = Version(epoch, number)
    return FragmentUpdate(epoch, FragmentIndex(0), version, round_, "", 0.0, merged)


def adopted() -> Account:
    """An account that adopted version 1.0 at the start."""
    account = Account()
    account.adopt(update(0, -1), steps=0, tokens=0)
    return account


def figures(account: Account, tokens: int) -> tuple[int, int]:
    """Pending and overwritten tokens, of so many in total."""
    told = account.progress
    return tokens - told.settled_tokens, told.overwritten_tokens


def test_what_is_carried_on_stays_pending() -> None:
    account = adopted()
    account.answered(1, 0, 50)
    merged = Merged(1, 0, 5, 50)
    assert account.can_carry(merged)
    account.carry_on(update(1, 0, merged))
    assert figures(account, 75) == (25, 0)
    assert (account.base_steps, account.sent) == (5, [])
    account.carry_on(update(2, 4, merged))
    assert figures(account, 75) == (25, 0)


def test_what_was_refused_stays_pending_too() -> None:
    account = adopted()
    account.answered(1, 0, 50)
    account.carry_on(update(1, 0))
    assert figures(account, 70) == (70, 0)


def test_what_is_under_way_is_still_known_when_it_is_carried_on() -> None:
    account = adopted()
    account.answered(1, 5, 50)
    account.carry_on(update(1, 3))
    assert figures(account, 80) == (80, 0)
    assert account.can_carry(Merged(1, 5, 5, 50))
    account.carry_on(update(2, 5, Merged(1, 5, 5, 50)))
    assert figures(account, 90) == (40, 0)


def test_what_is_not_known_cannot_be_carried_on() -> None:
    assert not Account().can_carry(None)
    assert adopted().can_carry(None)
    assert not adopted().can_carry(Merged(1, 0, 5, 50))


@pytest.mark.parametrize(
    ("merged", "wanted"),
    [(Merged(1, 0, 5, 50), (0, 20)), (None, (0, 70))],
    ids=["merged", "refused"],
)
def test_adoption_discards_what_was_not_merged(
    merged: Merged | None, wanted: tuple[int, int]
) -> None:
    assert Account().progress == FragmentProgress()
    account = adopted()
    assert figures(account, 70) == (70, 0)
    account.answered(1, 0, 50)
    account.adopt(update(1, 0, merged), steps=7, tokens=70)
    assert figures(account, 70) == wanted
    assert figures(account, 75) == (5, wanted[1])


@pytest.mark.parametrize(
    ("decided", "overwritten"),
    [(update(2, 5, Merged(1, 5, 5, 50)), 20 + 20), (update(2, 6), 90)],
    ids=["merged", "not merged"],
)
def test_doubt_ends_with_the_decision(decided: FragmentUpdate, overwritten: int) -> None:
    account = adopted()
    account.answered(1, 5, 50)
    account.adopt(update(1, 3), steps=7, tokens=70)
    assert figures(account, 80) == (10 + 50, 20), "it may be merged yet"
    account.adopt(decided, steps=9, tokens=90)
    assert figures(account, 90) == (0, overwritten)


def test_doubt_lasts_until_the_last_of_its_tickets_is_decided() -> None:
    account = adopted()
    account.answered(1, 5, 30)
    account.answered(1, 8, 50)
    account.adopt(update(1, 3), steps=7, tokens=70)
    account.adopt(update(2, 6), steps=9, tokens=90)
    assert figures(account, 90) == (50, 20 + 20)
    account.adopt(update(3, 8, Merged(1, 8, 5, 50)), steps=10, tokens=100)
    assert figures(account, 100) == (0, 20 + 20 + 10)


def test_a_new_epoch_decides_all_older_tickets() -> None:
    account = adopted()
    account.answered(1, 50, 50)
    account.adopt(update(1, 2, epoch=2), steps=7, tokens=70)
    assert figures(account, 70) == (0, 70)


def test_the_same_merge_is_counted_once() -> None:
    account = adopted()
    merged = Merged(1, 0, 5, 50)
    account.answered(1, 0, 50)
    account.adopt(update(1, 0, merged), steps=7, tokens=70)
    account.adopt(update(2, 4, merged), steps=9, tokens=90)
    assert figures(account, 90) == (0, 40)


def test_what_was_merged_before_the_newest_is_no_news() -> None:
    account = adopted()
    account.answered(1, 3, 20)
    account.answered(1, 5, 50)
    newest = Merged(1, 5, 5, 50)
    account.carry_on(update(1, 5, newest))
    for older in (Merged(1, 3, 2, 20), Merged(0, 9, 2, 20), newest):
        account.carry_on(update(2, 6, older))
    assert (account.base_steps, account.base_tokens) == (5, 50)
    assert figures(account, 75) == (25, 0)


def test_the_larger_of_two_answers_from_one_base_may_be_the_merged_one() -> None:
    account = adopted()
    account.answered(1, 0, 30)
    account.answered(1, 1, 60)
    account.adopt(update(1, 1, Merged(1, 1, 6, 60)), steps=7, tokens=70)
    assert figures(account, 70) == (0, 10)


def test_a_new_syncer_with_nothing_newer_ends_the_doubt() -> None:
    account = adopted()
    account.answered(1, 5, 50)
    account.adopt(update(1, 3), steps=7, tokens=70)
    account.welcomed(1, Version(1, 1))
    assert figures(account, 70) == (50, 20)
    account.welcomed(2, Version(1, 2))
    assert figures(account, 70) == (50, 20)
    account.welcomed(2, Version(1, 1))
    assert figures(account, 70) == (0, 70)


def test_a_second_answer_to_a_ticket_voids_the_first() -> None:
    account = adopted()
    account.answered(1, 5, 50)
    account.adopt(update(1, 4), steps=7, tokens=70)
    assert figures(account, 90) == (20 + 50, 20)
    account.answered(1, 5, 20)
    assert figures(account, 90) == (20, 70)
    account.adopt(update(2, 5, Merged(1, 5, 2, 20)), steps=10, tokens=100)
    assert figures(account, 100) == (0, 80)
