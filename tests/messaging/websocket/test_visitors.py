"""Who gives way at the door, and who does not."""

import random

import pytest

from messaging.websocket.visitors import TrustLevel, Visitors, place_of


def filled(*places: str, strangers: int = 3, most: int = 1000, guests: int = 1000) -> Visitors:
    """Connections from these places, numbered from 1."""
    visitors = Visitors(most, strangers, guests)
    for number, place in enumerate(places, 1):
        assert visitors.come(number, place, float(number)) is None
    return visitors


def test_the_oldest_of_the_most_crowded_place_gives_way() -> None:
    visitors = filled("far", "near", "near")
    assert visitors.come(4, "near", 4.0) == 2
    visitors.leave(2)
    assert visitors.come(5, "near", 5.0) == 3


def test_whoever_has_shown_the_secret_gives_way_to_no_stranger() -> None:
    visitors = filled("a", "a", "a", most=3)
    for number in (1, 2, 3):
        assert visitors.rise(number, TrustLevel.GUEST) is None
    assert visitors.come(4, "b", 4.0) == 4


def test_guests_give_way_among_themselves_and_members_to_nobody() -> None:
    visitors = filled("a", "a", "a", guests=2)
    assert visitors.rise(1, TrustLevel.GUEST) is None
    assert visitors.rise(1, TrustLevel.MEMBER) is None
    assert visitors.rise(2, TrustLevel.GUEST) is None
    assert visitors.rise(3, TrustLevel.GUEST) is None
    visitors.come(4, "b", 4.0)
    assert visitors.rise(4, TrustLevel.GUEST) == 2


def test_nobody_falls_and_who_is_gone_does_not_rise() -> None:
    visitors = filled("a")
    visitors.rise(1, TrustLevel.MEMBER)
    assert visitors.rise(1, TrustLevel.GUEST) is None
    assert visitors.trust(1) is TrustLevel.MEMBER
    visitors.leave(1)
    assert visitors.rise(1, TrustLevel.GUEST) is None
    visitors.leave(1)
    assert len(visitors) == 0


def test_late_are_those_that_open_no_session() -> None:
    visitors = filled("a", "b", "c")
    visitors.settle(1)
    assert visitors.late(3.0) == [2]
    assert visitors.late(9.0) == [2, 3]


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_place_is_what_a_host_cannot_choose(address: str, place: str) -> None:
    assert place_of(address) == place


def test_counts_are_right_whatever_happens() -> None:
    rng = random.Random(0)
    visitors = Visitors(40, 10, 15)
    here: set[int] = set()
    for number in range(1, 5000):
        gone = visitors.come(number, str(rng.randrange(4)), float(number))
        here.add(number)
        if gone is None and rng.random() < 0.7:
            gone = visitors.rise(rng.choice(sorted(here)), rng.choice([*TrustLevel]))
        for one in {gone, rng.choice(sorted(here)) if rng.random() < 0.6 else None} - {None}:
            visitors.leave(int(one or 0))
            here.discard(int(one or 0))
        assert len(visitors) == len(here) <= 40
        assert visitors.count(TrustLevel.STRANGER) <= 10
        assert visitors.count(TrustLevel.GUEST) <= 15
    for one in here:
        visitors.leave(one)
    assert [visitors.count(trust) for trust in TrustLevel] == [0, 0, 0]
    assert visitors.late(1e9) == []
