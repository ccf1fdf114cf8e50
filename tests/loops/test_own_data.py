"""The user's own data: each leased record is read once in a pass.

The syncer's own book of leases gives the records out here, and hears of every step that was booked.
"""

import random
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.loops.own_data import LeasedBatches
from islands.protocol.errors import SettingsError
from islands.protocol.identities import Incarnation, LearnerName, Lease, Phase
from islands.protocol.messages.training import Progress
from islands.protocol.syncer.leases import LeaseBook
from islands.tasks.data.shards import ShardKey, ShardPlan

PLAN = ShardPlan(100, 7, seed=3)
SIZES = (1, 5, 13, 14)
"""Records of a batch, from the smallest to the largest that a shard of the plan has room for."""


def asked(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    return indices


class Reader:
    def __init__(self, book: LeaseBook, name: str, counter: int, size: int) -> None:
        self.book, self.name, self.size = book, LearnerName(name), size
        self.incarnation = Incarnation(1, counter)
        self.data = LeasedBatches(PLAN, size, asked, size)
        self.steps = 0
        self.leases: tuple[Lease, ...] = ()
        book.open(self.name, self.incarnation)

    def step(self) -> list[int]:
        """Take a step, book it, and report it; returns its records."""
        self.book.top_up(self.name, batch_tokens=self.size, members=2, chunk_steps=8)
        held = tuple(self.book.holders[self.name].leases)
        if held != self.leases:
            self.data.follow(held)
        assert self.data.ready(), "there is always room for a batch"
        records = self.data.take()
        self.steps += 1
        self.data.booked()
        self.leases = self.data.leases
        self.book.reported(self.progress())
        return [int(record) for record in records]

    def progress(self) -> Progress:
        tokens = self.steps * self.size
        return Progress(
            *(self.name, self.incarnation, Phase.STEPPING, self.steps, tokens, 0.1),
            *(self.size, tokens, (), self.leases),
        )


def test_every_record_is_read_once_in_a_pass(seed: int) -> None:
    chance = random.Random(seed)
    book = LeaseBook(PLAN.shards, None, 8)
    readers: list[Reader] = []
    read: Counter[int] = Counter()
    for counter in range(1, 300):
        if not readers or chance.random() < 0.1:
            readers.append(Reader(book, f"r{counter}", counter, chance.choice(SIZES)))
        reader = chance.choice(readers)
        records = reader.step()
        assert len(records) == reader.size
        read.update(records)
        if chance.random() < 0.1:
            readers.remove(reader)
            book.close(reader.name, reader.steps * reader.size)
    while readers:  # each reads its last batches, so that whole passes can be told from others
        reader = readers.pop()
        book.close(reader.name, reader.steps * reader.size)
    whole = book.pass_index * PLAN.records + sum(map(PLAN.size, range(book.next_shard)))
    open_ = sum(PLAN.size(lease.shard) - lease.position for lease in book.free)
    assert read.total() == whole - open_
    left: Counter[int] = Counter()
    for lease in book.free:
        key = ShardKey(lease.pass_index, lease.shard)
        left.update(int(index) for index in PLAN.members(key)[lease.position :])
    ahead: Counter[int] = Counter()
    for shard in range(book.next_shard):
        ahead.update(int(index) for index in PLAN.members(ShardKey(book.pass_index, shard)))
    for record in range(PLAN.records):
        assert read[record] + left[record] == book.pass_index + ahead[record]


def followed(*leases: Lease, size: int = 10) -> LeasedBatches[NDArray[np.int64]]:
    data = LeasedBatches(PLAN, size, asked, size)
    data.follow(leases)
    return data


def test_a_batch_goes_on_in_the_next_shard() -> None:
    data = followed(Lease(0, 0, 0), Lease(0, 1, 0))
    for _ in range(2):
        assert data.ready()
        data.take()
        data.booked()
    size = PLAN.size(0)
    assert data.leases == (Lease(0, 0, size, done=True), Lease(0, 1, 20 - size))


def test_what_was_not_booked_is_read_again() -> None:
    data = followed(Lease(0, 0, 0), Lease(0, 1, 0))
    assert data.ready()
    data.booked()
    assert data.leases == (Lease(0, 0, 0), Lease(0, 1, 0))
    first = data.take()
    again = followed(Lease(0, 0, 0), Lease(0, 1, 0))
    assert again.ready()
    np.testing.assert_array_equal(again.take(), first)


def test_a_step_without_a_batch_moves_no_position_back() -> None:
    """Its loop took none: what was leased since the last one stays leased."""
    data = followed(Lease(0, 0, 0), Lease(0, 1, 0))
    assert data.ready()
    data.take()
    data.booked()
    data.follow((Lease(0, 0, 0), Lease(0, 1, 0), Lease(0, 2, 0)))
    leases = data.leases
    assert leases == (Lease(0, 0, 10), Lease(0, 1, 0), Lease(0, 2, 0))
    data.booked()
    assert data.leases == leases


def test_a_shard_that_was_begun_is_read_first() -> None:
    data = followed(Lease(0, 3, 0), Lease(1, 2, 12), Lease(1, 4, 13))
    assert data.ready()
    data.take()
    data.booked()
    assert data.leases == (
        Lease(0, 3, 10 - (PLAN.size(2) - 12) - (PLAN.size(4) - 13)),
        Lease(1, 2, PLAN.size(2), done=True),
        Lease(1, 4, PLAN.size(4), done=True),
    )


def test_without_enough_records_it_waits() -> None:
    data = followed(Lease(0, 0, 12))
    assert not data.ready()
    data.follow((Lease(0, 0, 0), Lease(0, 5, 0)))
    assert data.leases == (Lease(0, 0, 12), Lease(0, 5, 0))
    assert data.ready()
    assert len(data.take()) == 10


def test_a_lease_that_is_lost_is_not_read() -> None:
    data = followed(Lease(0, 0, 0), Lease(0, 1, 0))
    assert data.ready()
    data.follow(())
    assert not data.ready()
    data.follow((Lease(0, 2, 0),))
    assert data.ready()
    np.testing.assert_array_equal(data.take(), PLAN.members(ShardKey(0, 2))[:10])


@pytest.mark.parametrize("size", [-1, 0, 15])
def test_a_shard_has_room_for_a_batch(size: int) -> None:
    with pytest.raises(SettingsError, match=f"a batch has {size} records; it must have 1 to 14"):
        LeasedBatches(PLAN, size, asked, size)
