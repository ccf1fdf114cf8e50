"""Batches that are read ahead come in their order, however long each takes to read."""

from collections.abc import Iterator
from queue import Queue
from threading import Event

import pytest

from islands.tasks.data.batch_source import AHEAD, read_ahead
from islands.tasks.data.shards import ShardKey

SHARD = ShardKey(0, 0)


def nothing() -> None:
    """Take no note."""


def test_batches_come_in_order_from_the_position() -> None:
    def batches(_: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        for number in range(position, 10):
            yield f"batch {number}", number + 1

    opened = read_ahead(batches, nothing, nothing, nothing)
    assert list(opened(SHARD, 7)) == [("batch 7", 8), ("batch 8", 9), ("batch 9", 10)]


def test_an_error_of_the_reader_comes_where_the_batch_would() -> None:
    def batches(_: ShardKey, __: int) -> Iterator[tuple[object, int]]:
        yield "batch", 1
        raise OSError("the file is gone")

    found = read_ahead(batches, nothing, nothing, nothing)(SHARD, 0)
    assert next(found) == ("batch", 1)
    with pytest.raises(OSError, match="gone"):
        next(found)


def test_a_slow_reader_is_waited_for_and_said_to_be() -> None:
    """No batch is skipped because another host reads faster."""
    go, told = Event(), Queue[str]()

    def batches(_: ShardKey, __: int) -> Iterator[tuple[object, int]]:
        go.wait()
        yield "batch", 1

    def waits() -> None:
        told.put("waits")
        go.set()

    found = read_ahead(batches, waits, nothing, lambda: told.put("goes on"))
    assert list(found(SHARD, 0)) == [("batch", 1)]
    assert [told.get() for _ in range(2)] == ["waits", "goes on"]


def test_a_reader_that_has_nothing_yet_is_said_to_have_nothing() -> None:
    arrived, told = Event(), Queue[str]()

    def batches(_: ShardKey, __: int) -> Iterator[tuple[object | None, int]]:
        while not arrived.is_set():
            yield None, 0
        yield "batch", 1

    def nothing_yet() -> None:
        told.put("nothing yet")
        arrived.set()

    found = read_ahead(batches, nothing, nothing_yet, nothing)
    assert list(found(SHARD, 0)) == [("batch", 1)]
    assert told.get() == "nothing yet"


def test_no_more_is_read_than_is_kept_and_a_reader_that_is_left_ends() -> None:
    ended, read = Event(), list[int]()

    def batches(_: ShardKey, __: int) -> Iterator[tuple[object, int]]:
        try:
            for number in range(1_000_000):
                read.append(number)
                yield number, number + 1
        finally:
            ended.set()

    found = read_ahead(batches, nothing, nothing, nothing)(SHARD, 0)
    assert next(found) == (0, 1)
    assert isinstance(found, Iterator)
    del found
    assert ended.wait(30)
    assert len(read) <= 2 * AHEAD + 4
