"""Buffers of numbers are not copied, and reused only when nobody refers to them."""

import ml_dtypes
import numpy as np
import pytest

from messaging.codec.tensors import IDLE_TAKES, POOLED_BYTES_MIN, BufferPool, as_buffer, digest
from messaging.errors import LocalFault

SIZE = 1 << 20


def test_arrays_and_buffers_are_one_memory() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = as_buffer(array)
    assert buffer.readonly
    assert np.shares_memory(np.frombuffer(buffer, np.float32), array)
    assert as_buffer(array[:0]).nbytes == 0


def test_bfloat16_keeps_its_bits() -> None:
    array = np.array([1.0, -2.0], dtype=ml_dtypes.bfloat16)
    assert bytes(as_buffer(array)) == b"\x80\x3f\x00\xc0"


def test_a_strided_array_is_our_fault() -> None:
    """It would have to be copied, which whoever sends it is to see."""
    with pytest.raises(LocalFault, match="contiguous"):
        as_buffer(np.zeros((4, 4), np.float32)[:, 1])


def test_digest_is_the_published_one() -> None:
    assert digest(memoryview(b"")) == "af1349b9f5f9a1a6a0404dea36dcc949"


def test_digest_is_of_the_bytes() -> None:
    array = np.arange(4, dtype=np.float32)
    assert digest(as_buffer(array)) == digest(memoryview(array.tobytes()))
    flipped = bytearray(array.tobytes())
    flipped[5] ^= 1
    assert digest(as_buffer(array)) != digest(memoryview(flipped))


def address(buffer: memoryview) -> int:
    return np.frombuffer(buffer, np.uint8).ctypes.data


def test_buffer_is_used_again_once_nobody_refers_to_it() -> None:
    pool = BufferPool()
    first = pool.take(SIZE)
    at = address(first)
    del first
    assert address(pool.take(SIZE)) == at
    assert pool.bytes_kept == SIZE


def test_buffer_that_somebody_holds_is_left_alone() -> None:
    pool = BufferPool()
    holders: list[object] = []
    addresses: list[int] = []
    for hold in (
        lambda buffer: buffer,
        lambda buffer: buffer.toreadonly()[5:10],
        lambda buffer: np.frombuffer(buffer.toreadonly(), np.float32),
        lambda buffer: np.frombuffer(buffer, np.float32)[::2].reshape(-1, 2)[3:],
        lambda buffer: as_buffer(np.frombuffer(buffer, np.float32)),
    ):
        buffer = pool.take(SIZE)
        addresses.append(address(buffer))
        holders.append(hold(buffer))
        del buffer
    assert len(dict.fromkeys(addresses)) == len(holders)
    holders.clear()
    again = [pool.take(SIZE) for _ in addresses]
    assert sorted(map(address, again)) == sorted(addresses)


def test_pool_keeps_no_more_than_its_limit() -> None:
    pool = BufferPool(limit_bytes=3 * SIZE)
    held = [pool.take(SIZE) for _ in range(10)]
    assert pool.bytes_kept == 3 * SIZE
    assert len(dict.fromkeys(map(address, held))) == 10
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
    assert address(pool.take(2 * SIZE)) != address(held)
