"""Gossip steps: hand values, the float64 oracle written apart, and what a group agrees on."""

import numpy as np
import pytest

from islands.numerics.gossip import Values, average_step, noloco_step
from islands.protocol.errors import InvariantError
from tests.numerics.oracle import Fleet

RNG = np.random.default_rng(0)


def share(*, value: float, local: float) -> Values:
    return Values(np.array([value], np.float32), np.array([value - local], np.float32))


def test_a_pair_by_hand() -> None:
    own, other = share(value=0.0, local=2.0), share(value=4.0, local=8.0)
    rest = np.array([8.0], np.float32)
    for found in noloco_step(own, rest, [own, other], decay=0.5, rate=0.5, pull=0.25):
        np.testing.assert_array_equal(found, np.array([6.0], np.float32))


def test_the_plain_average_by_hand() -> None:
    members = [share(value=v, local=local) for v, local in ((0.0, 2.0), (4.0, 8.0), (1.0, 5.0))]
    np.testing.assert_array_equal(average_step(members), np.array([5.0], np.float32))


@pytest.mark.quick("1", "2", "3", "7")
@pytest.mark.parametrize("size", [1, 2, 3, 7, 4096])
def test_groups_of_any_size_agree_with_the_oracle(size: int) -> None:
    start = RNG.standard_normal(30)
    fleet = Fleet.at(start, size)
    slow, momentum = fleet.slow.astype(np.float32), fleet.momentum.astype(np.float32)
    judge = Fleet.at(start.astype(np.float32), size)
    for _ in range(5 if size < 4096 else 1):
        moved = RNG.standard_normal((size, 30)).astype(np.float32)
        judge.local += moved
        judge.step([range(size)])
        shares = [Values(row, -step) for row, step in zip(slow, moved, strict=True)]
        steps = [
            noloco_step(shares[i], momentum[i], shares, decay=0.5, rate=0.7, pull=0.7)
            for i in range(min(size, 8))
        ]
        for i, (value, moment) in enumerate(steps):
            np.testing.assert_allclose(value, judge.slow[i], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(moment, judge.momentum[i], rtol=1e-4, atol=1e-5)
        slow, momentum = judge.slow.astype(np.float32), judge.momentum.astype(np.float32)


def test_shares_are_left_as_they_are() -> None:
    rows = RNG.standard_normal((3, 2, 5)).astype(np.float32)
    before = rows.copy()
    shares = [Values(rows[0, i], rows[1, i]) for i in range(2)]
    noloco_step(shares[0], rows[2, 0], shares, decay=0.5, rate=0.7, pull=0.7)
    average_step(shares)
    np.testing.assert_array_equal(rows, before)


def test_nobody_makes_no_step() -> None:
    own = share(value=0.0, local=1.0)
    with pytest.raises(InvariantError, match="at least one member"):
        noloco_step(own, own.value, [], decay=0.5, rate=0.7, pull=0.7)
    with pytest.raises(InvariantError, match="at least one member"):
        average_step([])
