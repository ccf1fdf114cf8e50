"""Buffers of numbers and clocks: two small agreements that much rests on."""

import asyncio

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.clock import Clock, LoopClock, MonotonicClock, WallClock
from messaging.codec.tensors import (
    DTYPES,
    TensorSchema,
    as_array,
    as_buffer,
    check,
    digest,
    schema_of,
)
from messaging.errors import LocalFault, SchemaError
from messaging.simulation.doubles import FakeClock
from messaging.simulation.virtual_time import run_virtual


@given(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 4), max_size=3).map(tuple))
def test_arrays_and_buffers_are_one_memory(dtype: str, shape: tuple[int, ...]) -> None:
    """An array seen as bytes and back is the same array in the same place."""
    array = np.arange(np.prod(shape, dtype=int)).astype(DTYPES[dtype]).reshape(shape)
    buffer = as_buffer(array)
    schema = schema_of(array)
    again = as_array(schema, buffer)
    assert schema == TensorSchema(dtype, shape)
    assert again.dtype == array.dtype
    assert np.array_equal(again, array)
    assert not again.flags.writeable
    assert array.size == 0 or np.shares_memory(again, array)


def test_bfloat16_keeps_its_bits() -> None:
    """A bfloat16 buffer is two bytes per element, the upper half of a float32."""
    array = np.array([1.0, -2.0], dtype=ml_dtypes.bfloat16)
    assert bytes(as_buffer(array)) == b"\x80\x3f\x00\xc0"


@pytest.mark.parametrize("size", [0, 15, 17])
def test_wrong_length_is_a_schema_error(size: int) -> None:
    """A buffer of another length is refused with both lengths in the sentence."""
    with pytest.raises(SchemaError, match=f"16 bytes, not {size}"):
        check(TensorSchema("float32", (2, 2)), memoryview(bytes(size)))


def test_strided_buffer_is_a_schema_error() -> None:
    """A buffer with gaps is refused even if its length is right."""
    with pytest.raises(SchemaError, match="contiguous"):
        check(TensorSchema("uint8", (4,)), memoryview(bytes(8))[::2])


def test_schemas_of_nothing_known_are_our_fault() -> None:
    """Unknown types, negative lengths and strided arrays are mistakes of this process."""
    with pytest.raises(LocalFault, match="float3"):
        TensorSchema("float3", (1,))
    with pytest.raises(LocalFault, match="negative"):
        TensorSchema("float32", (-1,))
    with pytest.raises(LocalFault, match="contiguous"):
        as_buffer(np.zeros((4, 4), np.float32)[:, 1])


def test_digest_is_the_published_one() -> None:
    """The digest is the first 16 bytes of BLAKE3: here of no bytes, as its authors publish it."""
    assert digest(memoryview(b"")) == "af1349b9f5f9a1a6a0404dea36dcc949"


def test_digest_is_of_the_bytes() -> None:
    """A digest is that of the buffer's bytes, whatever its format; one bit makes another one."""
    array = np.arange(4, dtype=np.float32)
    assert digest(as_buffer(array)) == digest(memoryview(array.tobytes()))
    flipped = bytearray(array.tobytes())
    flipped[5] ^= 1
    assert digest(as_buffer(array)) != digest(memoryview(flipped))


def test_loop_clock_follows_the_virtual_loop() -> None:
    """The loop's clock shows virtual seconds on a virtual loop, bound to it or not."""

    async def main() -> tuple[float, float]:
        clocks: list[Clock] = [LoopClock(), LoopClock(asyncio.get_running_loop())]
        await asyncio.sleep(100)
        first, second = clocks
        return first.now_s(), second.now_s()

    assert run_virtual(main(), limit_s=1000) == (100, 100)


def test_fake_clock_moves_when_told() -> None:
    """A fake clock stands still until it is advanced, and does not go back."""
    clock = FakeClock(5.0)
    assert clock.now_s() == clock.now_s() == 5.0
    assert clock.advance(2.5) == clock.now_s() == 7.5
    with pytest.raises(AssertionError):
        clock.advance(-1)


def test_system_clocks_go_forward() -> None:
    """Monotonic time never goes back; wall time counts from 1970."""
    clock = MonotonicClock()
    assert clock.now_s() <= clock.now_s()
    assert WallClock().now_s() > 1.6e9
