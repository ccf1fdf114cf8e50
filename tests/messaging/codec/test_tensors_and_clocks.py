"""Buffers of numbers and clocks: two small agreements that much rests on."""

import asyncio

import ml_dtypes
import numpy as np
import pytest

from messaging.clock import Clock, LoopClock, MonotonicClock, WallClock
from messaging.codec.tensors import as_buffer, digest
from messaging.errors import LocalFault
from tests.virtual import virtual


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


@virtual
async def test_loop_clock_follows_the_virtual_loop() -> None:
    clock: Clock = LoopClock()
    await asyncio.sleep(100)
    assert clock.now_s() == 100


def test_system_clocks_go_forward() -> None:
    clock = MonotonicClock()
    assert clock.now_s() <= clock.now_s()
    assert WallClock().now_s() > 1.6e9
