"""Iterators whose state is opaque, at positions that are numbers."""

import sys
import threading
from collections.abc import Iterator

import grain
import numpy as np
import pytest

from examples.streams import STATES_EVERY, STATES_MAX, Stream
from islands.tasks.data.shards import ShardKey

SHARD, OTHER = ShardKey(0, 3), ShardKey(1, 3)


class Counting:
    """An iterator that counts what is read, and whose state is a text."""

    def __init__(self, shard: ShardKey, reads: list[int], size: int = 100) -> None:
        self._shard = shard
        self._reads = reads
        self._size = size
        self._at = 0

    def __iter__(self) -> "Counting":
        return self

    def __next__(self) -> str:
        if self._at == self._size:
            raise StopIteration
        self._at += 1
        self._reads.append(self._at)
        return f"{self._shard} {self._at}"

    def get_state(self) -> object:
        return f"at {self._at}"

    def set_state(self, state: object) -> None:
        self._at = int(str(state).removeprefix("at "))


@pytest.mark.parametrize("position", [0, 1, STATES_EVERY, STATES_EVERY + 1, 99, 100, 101])
def test_a_position_always_leads_to_the_same_batches(position: int) -> None:
    reads: list[int] = []
    stream = Stream(lambda shard: Counting(shard, reads))
    expected = [f"{SHARD} {n}" for n in range(position + 1, 101)]
    fresh = list(stream.batches(SHARD, position))
    assert [batch for batch, _ in fresh] == expected
    assert [after for _, after in fresh] == list(range(position + 1, 101))
    assert list(stream.batches(SHARD, position)) == fresh


def test_who_has_read_it_does_not_read_it_again() -> None:
    reads: list[int] = []
    stream = Stream(lambda shard: Counting(shard, reads))
    first = stream.batches(SHARD, 0)
    for _ in range(50):
        next(first)
    reads.clear()
    assert next(stream.batches(SHARD, 50)) == (f"{SHARD} 51", 51)
    assert reads == [49, 50, 51]
    reads.clear()
    assert next(stream.batches(OTHER, 2)) == (f"{OTHER} 3", 3)
    assert reads == [1, 2, 3]


def test_states_are_bounded() -> None:
    reads: list[int] = []
    size = (STATES_MAX + 10) * STATES_EVERY
    stream = Stream(lambda shard: Counting(shard, reads, size))
    assert sum(1 for _ in stream.batches(SHARD, 0)) == size
    reads.clear()
    next(stream.batches(SHARD, size - 1))
    assert len(reads) < STATES_EVERY + 1
    assert len(stream._states) == STATES_MAX  # noqa: SLF001  what is bounded


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_learners_of_one_process_may_read_at_once() -> None:
    stream = Stream(lambda shard: Counting(shard, [], 2 * STATES_EVERY))
    read: list[int] = []

    def learn(number: int) -> None:
        for turn in range(300):
            position = turn % STATES_EVERY
            batches = stream.batches(ShardKey(turn, number), position)
            read.append(position + sum(1 for _ in batches))

    threads = [threading.Thread(target=learn, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [2 * STATES_EVERY] * 1200


def test_an_iterator_without_a_state_is_read_from_its_start() -> None:
    def begin(_: ShardKey) -> Iterator[int]:
        yield from range(20)

    stream = Stream(begin)
    assert sum(1 for _ in stream.batches(SHARD, 0)) == 20
    assert next(stream.batches(SHARD, 17)) == (17, 18)


def test_grains_iterators_go_on_where_they_were() -> None:
    def begin(shard: ShardKey) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
        numbers = grain.MapDataset.range(400).seed(shard.shard).to_iter_dataset()
        shuffled = grain.experimental.WindowShuffleIterDataset(numbers, window_size=32, seed=1)
        return iter(shuffled.batch(4))

    stream, other = Stream(begin), Stream(begin)
    first = [batch.tolist() for batch, _ in stream.batches(SHARD, 0)]
    again = [batch.tolist() for batch, _ in stream.batches(SHARD, 40)]
    elsewhere = [batch.tolist() for batch, _ in other.batches(SHARD, 40)]
    assert first[40:] == again == elsewhere
