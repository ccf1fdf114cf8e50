"""Batches of leases, read when asked or ahead: in order, exactly once, never of a lost shard."""

import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from islands.protocol.identities import Lease
from islands.tasks.data.batch_source import AHEAD, ARRIVING, READING, BatchSource, ReadAhead, Taken
from islands.tasks.data.shards import ShardKey

LIMIT_S = 30.0
RECORDS = 20


class Shards:
    """Shards of `RECORDS` records, which are read as far as a test allows."""

    def __init__(self, allowed: int = 1 << 20) -> None:
        self.read: list[tuple[int, int]] = []
        self.allowed = threading.Semaphore(allowed)
        self.broken_at: int | None = None
        self.error: type[BaseException] = ValueError

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        for place in range(position, RECORDS):
            assert self.allowed.acquire(timeout=LIMIT_S)
            if place == self.broken_at:
                raise self.error(f"record {place} is broken")
            self.read.append((shard.shard, place))
            yield f"{shard.shard}:{place}", place + 1


class Reader:
    """A reader ahead whose batches a test can wait for."""

    def __init__(self, shards: Shards) -> None:
        self._came = threading.Event()
        self.source = ReadAhead(shards.batches, "read-test", self._came.set)

    def expects(self) -> bool:
        return self.source.expecting

    def take(self) -> Taken:
        while True:  # until the limit
            self._came.clear()
            taken = self.source.take()
            if taken is not None:
                return taken
            assert self._came.wait(LIMIT_S)


@pytest.fixture
def shards() -> Shards:
    return Shards()


@pytest.fixture
def reader(shards: Shards) -> Iterator[Reader]:
    made = Reader(shards)
    yield made
    made.source.close()


def all_of(source: BatchSource, count: int, reader: Reader | None = None) -> list[Taken | None]:
    return [reader.take() if reader else source.take() for _ in range(count)]


def test_both_sources_give_the_same(reader: Reader) -> None:
    leases = (Lease(0, 3, 17), Lease(0, 5, RECORDS), Lease(1, 0, 18))
    direct = BatchSource(Shards().batches)
    for source in (direct, reader.source):
        source.follow(leases)
    expected = all_of(direct, 8)
    assert expected[0] == Taken(ShardKey(0, 3), "3:17", 18)
    assert expected[3:5] == [
        Taken(ShardKey(0, 3), None, RECORDS),
        Taken(ShardKey(0, 5), None, RECORDS),
    ]
    assert all_of(reader.source, 8, reader) == expected
    assert direct.take() is reader.source.take() is None
    assert not reader.source.expecting


def test_no_more_is_read_than_has_room(shards: Shards, reader: Reader) -> None:
    reader.source.follow((Lease(0, 0, 0),))
    for _ in range(5):
        reader.take()
    assert len(shards.read) <= 5 + AHEAD + 1


def test_a_shard_that_is_still_held_is_read_on(shards: Shards, reader: Reader) -> None:
    reader.source.follow((Lease(0, 1, 0),))
    taken = [reader.take() for _ in range(3)]
    for position in (0, 2, 3):
        reader.source.follow((Lease(0, 0, 0), Lease(0, 1, position)))
        taken.append(reader.take())
    assert [each.position for each in taken] == [1, 2, 3, 4, 5, 6]
    assert {each.shard for each in taken} == {ShardKey(0, 1)}
    assert len(set(shards.read)) == len(shards.read)


@pytest.mark.parametrize(
    ("first", "then"),
    [((Lease(0, 0, 0), Lease(0, 1, 7)), Lease(0, 1, 7)), ((Lease(0, 1, 0),), Lease(0, 1, 7))],
    ids=["lost", "read on"],
)
def test_what_was_read_of_a_lost_shard_or_of_one_that_another_has_read_on_is_dropped(
    reader: Reader, first: tuple[Lease, ...], then: Lease
) -> None:
    reader.source.follow(first)
    reader.take()
    reader.source.follow((then,))
    assert reader.take() == Taken(ShardKey(0, 1), "1:7", 8)


def test_it_says_whether_there_is_anything_to_wait_for() -> None:
    shards = Shards(0)
    reader = Reader(shards)
    assert not reader.expects()
    reader.source.follow((Lease(0, 0, RECORDS - 1),))
    assert reader.source.take() is None
    assert reader.expects()
    shards.allowed.release()
    assert reader.take().batch == f"0:{RECORDS - 1}"
    assert reader.take().batch is None
    assert not reader.expects()
    reader.source.close()


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_an_error_is_raised_where_its_batch_would_have_been_taken(
    shards: Shards, reader: Reader, kind: type[BaseException]
) -> None:
    """All batches before it are taken first; an exit, too, which would end the thread silently."""
    shards.broken_at, shards.error = 2, kind
    reader.source.follow((Lease(0, 0, 0),))
    assert [reader.take().position for _ in range(2)] == [1, 2]
    with pytest.raises(kind, match="record 2 is broken") as error:
        reader.take()
    assert error.traceback[-1].name == "batches"


def test_the_next_batch_follows_from_the_leases_however_far_was_read() -> None:
    """Hosts that read the same must take the same, so what was read ahead never changes an order.

    One reader has read all that has room, of two shards; another has read nothing yet.
    """
    first = (Lease(0, 0, RECORDS - 1), Lease(0, 1, 0))
    then = (Lease(0, 2, RECORDS - 1), Lease(0, 1, 0), Lease(0, 0, RECORDS - 1))
    full = threading.Event()
    read: list[tuple[int, int]] = []

    def batches(shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        for place in range(position, RECORDS):
            read.append((shard.shard, place))
            if len(read) == AHEAD - 1:  # beside the end of the first shard
                full.set()
            yield f"{shard.shard}:{place}", place + 1

    ahead, direct = ReadAhead(batches, "read-test", nothing, nothing), BatchSource(Shards().batches)
    ahead.follow(first)
    assert full.wait(LIMIT_S)
    direct.follow(first)
    for source in (ahead, direct):
        source.follow(then)
    taken = all_of(direct, 6)
    assert all_of(ahead, 6) == taken
    assert [each.shard.shard for each in taken if each] == [0, 0, 2, 2, 1, 1]
    ahead.close()


def test_never_are_two_shards_open_at_once() -> None:
    """A user's reader may have one file open: what is behind another shard begins anew."""
    opened: list[int] = []

    def batches(shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        opened.append(shard.shard)
        for place in range(position, 2):
            yield f"{shard.shard}:{place}", place + 1
            assert opened[-1] == shard.shard, "another shard was opened meanwhile"

    source = ReadAhead(batches, "read-test", nothing, nothing)
    source.follow((Lease(0, 0, 1), Lease(0, 1, 0)))
    assert source.take() == Taken(ShardKey(0, 0), "0:1", 2)
    source.follow((Lease(0, 2, 0), Lease(0, 0, 1), Lease(0, 1, 0)))
    taken = [source.take() for _ in range(7)]
    assert [each.batch for each in taken if each] == [None, "2:0", "2:1", None, "1:0", "1:1", None]
    source.close()


def test_a_slow_reader_is_waited_for_and_said_to_be() -> None:
    """No batch is skipped because another host reads faster."""
    shards, told = Shards(0), Queue[str]()

    def waits(what: str) -> None:
        told.put(what)
        if what == READING:
            shards.allowed.release()

    source = ReadAhead(shards.batches, "read-test", nothing, waits)
    source.follow((Lease(0, 0, RECORDS - 1),))
    assert source.take() == Taken(ShardKey(0, 0), f"0:{RECORDS - 1}", RECORDS)
    assert [told.get(timeout=LIMIT_S) for _ in range(2)] == [READING, ""]
    assert told.empty()
    source.close()


def test_a_reader_that_has_nothing_yet_is_said_to_have_nothing() -> None:
    arrived, told = threading.Event(), Queue[str]()

    def batches(_: ShardKey, __: int) -> Iterator[tuple[object | None, int]]:
        while not arrived.is_set():
            yield None, 0
        yield "batch", 1

    def waits(what: str) -> None:
        told.put(what)
        if what == ARRIVING:
            arrived.set()

    source = ReadAhead(batches, "read-test", nothing, waits)
    source.follow((Lease(0, 0, 0),))
    assert source.take() == Taken(ShardKey(0, 0), "batch", 1)
    assert ARRIVING in {told.get(timeout=LIMIT_S) for _ in range(3)}
    source.close()


def test_a_shard_that_has_nothing_yet_is_asked_again() -> None:
    arrived: list[str] = []

    def batches(_: ShardKey, position: int) -> Iterator[tuple[object | None, int]]:
        while not arrived:
            yield None, position
        yield arrived[0], position + 1

    source = BatchSource(batches)
    source.follow((Lease(0, 0, 0),))
    assert source.take() is source.take() is None
    assert source.expecting
    arrived.append("batch")
    assert source.take() == Taken(ShardKey(0, 0), "batch", 1)


def test_a_reader_that_is_closed_ends() -> None:
    ended = threading.Event()

    def batches(_: ShardKey, __: int) -> Iterator[tuple[object, int]]:
        try:
            while True:  # until it is let go
                yield "batch", 1
        finally:
            ended.set()

    source = ReadAhead(batches, "read-test", nothing, nothing)
    source.follow((Lease(0, 0, 0),))
    assert source.take() is not None
    source.close()
    assert ended.wait(LIMIT_S)


def nothing(*_: str) -> None:
    """Take no note."""
