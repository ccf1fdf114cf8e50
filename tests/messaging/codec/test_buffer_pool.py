"""Buffers are used again when nobody refers to them, and never before."""

import numpy as np

from messaging.codec.tensors import IDLE_TAKES, POOLED_BYTES_MIN, BufferPool, as_buffer

SIZE = 1 << 20


def place(buffer: memoryview) -> int:
    return np.frombuffer(buffer, np.uint8).ctypes.data


def test_buffer_is_used_again_once_nobody_refers_to_it() -> None:
    pool = BufferPool()
    first = pool.take(SIZE)
    where = place(first)
    del first
    assert place(pool.take(SIZE)) == where
    assert pool.bytes_kept == SIZE


def test_buffer_that_somebody_holds_is_left_alone() -> None:
    pool = BufferPool()
    holders: list[object] = []
    places: list[int] = []
    for hold in (
        lambda buffer: buffer,
        lambda buffer: buffer.toreadonly()[5:10],
        lambda buffer: np.frombuffer(buffer.toreadonly(), np.float32),
        lambda buffer: np.frombuffer(buffer, np.float32)[::2].reshape(-1, 2)[3:],
        lambda buffer: as_buffer(np.frombuffer(buffer, np.float32)),
    ):
        buffer = pool.take(SIZE)
        places.append(place(buffer))
        holders.append(hold(buffer))
        del buffer
    assert len(dict.fromkeys(places)) == len(holders)
    holders.clear()
    again = [pool.take(SIZE) for _ in places]
    assert sorted(map(place, again)) == sorted(places)


def test_pool_keeps_no_more_than_its_limit() -> None:
    pool = BufferPool(limit_bytes=3 * SIZE)
    held = [pool.take(SIZE) for _ in range(10)]
    assert pool.bytes_kept == 3 * SIZE
    assert len(dict.fromkeys(map(place, held))) == 10
    pool.take(2 * SIZE)
    assert pool.bytes_kept == 2 * SIZE


def test_small_buffers_are_not_pooled() -> None:
    pool = BufferPool()
    assert pool.take(POOLED_BYTES_MIN - 1).nbytes == POOLED_BYTES_MIN - 1
    assert pool.take(0).nbytes == 0
    assert pool.bytes_kept == 0


def test_buffers_of_a_size_that_is_not_wanted_any_more_are_given_back() -> None:
    pool = BufferPool()
    held = pool.take(2 * SIZE)
    pool.take(2 * SIZE)
    for _ in range(IDLE_TAKES):
        pool.take(SIZE)
    assert pool.bytes_kept == 5 * SIZE
    pool.take(SIZE)
    assert pool.bytes_kept == SIZE
    held[:] = bytes(held.nbytes)  # whoever holds one goes on using it
    assert place(pool.take(2 * SIZE)) != place(held)
