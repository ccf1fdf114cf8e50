"""The lossy block codecs against an oracle in float64 that was written apart from them."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from islands.numerics.codecs import decode, encode, size_bytes
from islands.protocol.settings.choices import Precision

LOSSY = (Precision.INT8, Precision.FP4, Precision.TWO_BIT)
LEAST = 2.0**-126
LARGEST_BFLOAT16 = 255 * 2.0**120
BLOCK = 256
Double = NDArray[np.float64]


def bfloat16(value: float) -> float:
    """Round a number ≥ 0 to 8 significant bits, ties to even; below 2⁻¹²⁶ it is zero."""
    if value < LEAST:
        return 0.0
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * 256), exponent - 8)  # round() ties to even


def int8_by_hand(block: Double) -> Double:
    """Multiples of a scale, from −127 to 127."""
    largest = float(np.float32(np.float64(np.abs(block).max()) / 127))
    scale = bfloat16(largest)
    while 127 * scale > float(np.finfo(np.float32).max):
        scale = math.nextafter(scale, 0)
        scale -= scale % math.ldexp(1, math.frexp(scale)[1] - 8)
    if scale == 0:
        return np.zeros_like(block)
    ratios = (block.astype(np.float32) / np.float32(scale)).astype(np.float64)
    return np.clip(np.round(ratios), -127, 127) * scale


def fp4_by_hand(block: Double) -> Double:
    """The nearest of the eight magnitudes, the larger of two that are equally near."""
    scale = min(bfloat16(float(np.abs(block).max())), LARGEST_BFLOAT16)
    levels = [0.0, *(scale * 2.0**-power for power in range(6, -1, -1))]
    found = []
    for x in block:
        size = abs(x) if abs(x) >= LEAST else 0.0
        near = min(abs(size - level) for level in levels)
        level = max(level for level in levels if abs(size - level) == near)
        found.append(math.copysign(level if level >= LEAST else 0.0, x))
    return np.array(found)


def two_bit_by_hand(block: Double) -> Double:
    """The mean of the magnitudes that are at most, or above, the root mean square."""
    sizes = np.abs(block)
    limit = np.float32(np.sqrt(np.mean(sizes**2)))
    found = np.zeros_like(block)
    for chosen in (sizes <= limit, sizes > limit):
        if chosen.any():
            mean = min(bfloat16(float(np.float32(sizes[chosen].mean()))), LARGEST_BFLOAT16)
            found[chosen] = mean
    return np.copysign(found, block)


BY_HAND = {
    Precision.INT8: int8_by_hand,
    Precision.FP4: fp4_by_hand,
    Precision.TWO_BIT: two_bit_by_hand,
}


def by_hand(values: NDArray[np.float32], precision: Precision) -> Double:
    wide = values.astype(np.float64)
    parts = [wide[start : start + BLOCK] for start in range(0, wide.size, BLOCK)]
    return np.concatenate([BY_HAND[precision](part) for part in parts])


def coded(values: NDArray[np.float32], precision: Precision) -> NDArray[np.float32]:
    return decode(encode(values, precision), values.size, precision)


def drawn(seed: int, size: int, scale: float, zeros: float) -> NDArray[np.float32]:
    """Normal numbers, some of them zero, others far larger than most."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size) * np.exp(rng.standard_normal(size) * 2) * scale
    values[rng.random(size) < zeros] = 0
    largest = float(np.finfo(np.float32).max)
    return np.clip(values, -largest, largest).astype(np.float32)


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
ANY = st.lists(FLOATS, min_size=1, max_size=40)
SIZES = st.integers(1, 3 * BLOCK + 1)
SCALES = st.sampled_from([1.0, 1e-38, 1e-36, 1e-20, 1e30, 1e38])


@pytest.mark.parametrize("precision", LOSSY)
@given(seed=st.integers(0, 2**32), size=SIZES, scale=SCALES, zeros=st.sampled_from([0.0, 0.9]))
def test_blocks_are_decoded_to_what_the_formula_says(
    precision: Precision, seed: int, size: int, scale: float, zeros: float
) -> None:
    """To the bit, for whole and short blocks, and down to where numbers count as zero.

    The means of two bits are sums in another order, which may round to the next bfloat16.
    """
    values = drawn(seed, size, scale, zeros)
    found, wanted = coded(values, precision).astype(np.float64), by_hand(values, precision)
    if precision is Precision.TWO_BIT:
        np.testing.assert_allclose(found, wanted, rtol=2**-7, atol=LEAST)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("precision", LOSSY)
@given(values=ANY)
def test_finite_values_stay_finite(precision: Precision, values: list[float]) -> None:
    found = coded(np.array(values, np.float32), precision)
    assert np.isfinite(found).all()
    assert not ((found != 0) & (np.abs(found) < LEAST)).any()


@pytest.mark.parametrize("precision", LOSSY)
@given(
    size=SIZES, where=st.integers(0, 3 * BLOCK), broken=st.sampled_from([np.nan, np.inf, -np.inf])
)
def test_what_is_not_finite_is_seen_by_the_receiver(
    precision: Precision, size: int, where: int, broken: float
) -> None:
    values, where = drawn(1, size, 1.0, 0.5), where % size
    values[where] = broken
    found = np.isnan(coded(values, precision))
    block = where // BLOCK * BLOCK
    assert found[block : block + BLOCK].all()
    assert not np.delete(found, slice(block, block + BLOCK)).any()


@pytest.mark.parametrize("precision", LOSSY)
@given(seed=st.integers(0, 2**32), size=SIZES, zeros=st.sampled_from([0.0, 0.5, 0.99]))
def test_something_of_each_block_arrives(
    precision: Precision, seed: int, size: int, zeros: float
) -> None:
    """What is lost is shorter than what was sent, or error feedback would grow without bounds."""
    values = drawn(seed, size, 1.0, zeros)
    lost = coded(values, precision) - values
    for start in range(0, size, BLOCK):
        part = slice(start, start + BLOCK)
        if values[part].any():
            assert np.linalg.norm(lost[part]) < 0.95 * np.linalg.norm(values[part])


def test_the_levels_of_fp4() -> None:
    levels = [2.0**-power for power in range(7)]
    given_ = np.array([1.0, *levels, *(-level for level in levels)], np.float32)
    np.testing.assert_array_equal(coded(given_, Precision.FP4), given_)
    ties = np.array([1.0, 0.75, 0.74, 2**-7, 2**-8], np.float32)
    np.testing.assert_array_equal(coded(ties, Precision.FP4), [1.0, 1.0, 0.5, 2**-6, 0.0])


def test_the_bytes_of_a_block() -> None:
    three = np.array([1.0, -0.5, 0.25], np.float32)
    assert encode(three, "fp4").tolist() == [7 | 5 << 4, 8 | 6, 0x80, 0x3F]
    assert encode(np.array([127.0, -3.0], np.float32), "int8").tolist() == [127, 253, 0x80, 0x3F]
    five = np.array([1.0, -1.0, 8.0, -8.0, 1.0], np.float32)
    codes = [0 | 1 << 2 | 0 << 4, 2 | 3 << 2]
    assert encode(five, "two_bit").tolist() == [*codes, 0x80, 0x3F, 0x00, 0x41]


@pytest.mark.parametrize(
    ("precision", "bits"),
    [(Precision.INT8, 8.0625), (Precision.FP4, 4.0625), (Precision.TWO_BIT, 2.125)],
)
def test_bits_per_value(precision: Precision, bits: float) -> None:
    assert 8 * size_bytes(1024 * BLOCK, precision) / (1024 * BLOCK) == bits


@pytest.mark.parametrize("precision", LOSSY)
def test_a_view_that_may_not_be_written_is_encoded(precision: Precision) -> None:
    from islands.numerics import codec_kernel

    values = np.full(300, 127, np.float32)
    values.flags.writeable = False
    sent = encode(values, precision)
    sent.flags.writeable = False
    np.testing.assert_array_equal(decode(sent, 300, precision), values)
    loops: list[Any] = [codec_kernel.encode_int8, codec_kernel.decode_fp4]
    assert [len(loop.signatures) for loop in loops] == [1, 1]
