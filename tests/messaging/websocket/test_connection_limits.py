"""Which connections are evicted, and which are not."""

import random

import pytest

from messaging.websocket.connection_limits import (
    Connection,
    ConnectionLimits,
    TrustLevel,
    network_of,
)


class Table(ConnectionLimits):
    """Connections by number, from 1, with bounds that a test can reach."""

    def __init__(self, most: int = 1000, strangers: int = 3, guests: int = 1000) -> None:
        super().__init__(most, strangers, guests)
        self.numbers: dict[Connection, int] = {}
        self.made: list[Connection] = []

    def come(self, *addresses: str) -> int | None:
        """Connect from each address; return the number of the last one to evict."""
        evicted = None
        for address in addresses:
            number = len(self.made) + 1
            connection = Connection(address, float(number), lambda: None)
            self.made.append(connection)
            self.numbers[connection] = number
            evicted = self.add(connection)
        return None if evicted is None else self.numbers[evicted]

    def rise(self, number: int, trust: TrustLevel) -> int | None:
        evicted = self.promote(self.made[number - 1], trust)
        return None if evicted is None else self.numbers[evicted]

    def leave(self, number: int) -> None:
        self.remove(self.made[number - 1])


def test_the_oldest_of_the_most_crowded_network_is_evicted() -> None:
    table = Table()
    assert table.come("far", "near", "near") is None
    assert table.come("near") == 2
    table.leave(2)
    assert table.come("near") == 3


def test_whoever_has_shown_the_secret_is_evicted_for_no_stranger() -> None:
    table = Table(most=3)
    table.come("a", "a", "a")
    for number in (1, 2, 3):
        assert table.rise(number, TrustLevel.GUEST) is None
    assert table.come("b") == 4


def test_guests_are_evicted_for_guests_and_members_for_nobody() -> None:
    table = Table(guests=2)
    table.come("a", "a", "a")
    assert table.rise(1, TrustLevel.GUEST) is None
    assert table.rise(1, TrustLevel.MEMBER) is None
    assert table.rise(2, TrustLevel.GUEST) is None
    assert table.rise(3, TrustLevel.GUEST) is None
    table.come("b")
    assert table.rise(4, TrustLevel.GUEST) == 2


def test_trust_does_not_fall_and_who_is_gone_gets_none() -> None:
    table = Table()
    table.come("a")
    table.rise(1, TrustLevel.MEMBER)
    assert table.rise(1, TrustLevel.GUEST) is None
    assert table.made[0].trust is TrustLevel.MEMBER
    table.leave(1)
    assert table.rise(1, TrustLevel.GUEST) is None
    table.leave(1)
    assert len(table) == 0


def test_late_are_those_that_open_no_session() -> None:
    table = Table()
    table.come("a", "b", "c")
    table.join_session(table.made[0])
    assert table.late(3.0) == table.made[1:2]
    assert table.late(9.0) == table.made[1:]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_network_is_what_a_host_cannot_choose(address: str, network: str) -> None:
    assert network_of(address) == network


def test_counts_are_right_whatever_happens() -> None:
    rng = random.Random(0)
    table = Table(40, 10, 15)
    here: set[int] = set()
    for number in range(1, 5000):
        gone = table.come(str(rng.randrange(4)))
        here.add(number)
        if gone is None and rng.random() < 0.7:
            gone = table.rise(rng.choice(sorted(here)), rng.choice([*TrustLevel]))
        for one in {gone, rng.choice(sorted(here)) if rng.random() < 0.6 else None} - {None}:
            table.leave(int(one or 0))
            here.discard(int(one or 0))
        assert len(table) == len(here) <= 40
        assert table.count(TrustLevel.STRANGER) <= 10
        assert table.count(TrustLevel.GUEST) <= 15
    for one in here:
        table.leave(one)
    assert [table.count(trust) for trust in TrustLevel] == [0, 0, 0]
    assert table.late(1e9) == []
