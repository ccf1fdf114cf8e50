"""Contributions to bytes and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.numerics.codecs import QUANTIZERS, decode, encode, size_bytes
from islands.protocol.errors import InvariantError
from islands.protocol.settings.choices import Precision

SAMPLE = np.random.default_rng(0).standard_normal(1000).astype(np.float32)


def bfloat16_by_hand(value: float) -> float:
    """Round to the nearest multiple of the spacing of bfloat16, ties to even, in integers."""
    bits = int(np.float32(value).view(np.uint32))
    low, high = bits & 0xFFFF, bits >> 16
    if low > 0x8000 or (low == 0x8000 and high & 1):
        high += 1
    return float(np.uint32(high << 16).view(np.float32))


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat16_rounds_to_nearest_even(value: float) -> None:
    sent = encode(np.array([value], np.float32), Precision.BFLOAT16)
    assert float(decode(sent, 1, Precision.BFLOAT16)[0]) == bfloat16_by_hand(value)


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.BFLOAT16])
def test_what_is_not_finite_stays_so(precision: Precision) -> None:
    broken = np.array([np.nan, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(decode(encode(broken, precision), 3, precision), broken)


@pytest.mark.parametrize("precision", QUANTIZERS)
def test_coding_again_changes_nothing(precision: Precision) -> None:
    once = decode(encode(SAMPLE, precision), SAMPLE.size, precision)
    twice = decode(encode(once, precision), SAMPLE.size, precision)
    np.testing.assert_array_equal(once, twice)


def test_float32_is_neither_changed_nor_copied() -> None:
    sent = encode(SAMPLE, Precision.FLOAT32)
    received = decode(sent, SAMPLE.size, Precision.FLOAT32)
    np.testing.assert_array_equal(received, SAMPLE)
    assert np.shares_memory(sent, SAMPLE)
    assert np.shares_memory(received, SAMPLE)


@pytest.mark.parametrize("precision", QUANTIZERS)
def test_the_length_is_known_beforehand(precision: Precision) -> None:
    sent = encode(SAMPLE, precision)
    assert sent.dtype == np.uint8
    assert sent.size == size_bytes(SAMPLE.size, precision)
    for wrong in (sent[:-1], np.append(sent, np.uint8(0))):
        with pytest.raises(InvariantError, match="bytes"):
            decode(wrong, SAMPLE.size, precision)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_decoded(kind: type[bytes]) -> None:
    buffer = kind(encode(SAMPLE, "bfloat16").tobytes())
    assert decode(buffer, SAMPLE.size, "bfloat16").size == SAMPLE.size


def test_every_precision_of_the_settings_can_be_coded() -> None:
    assert set(QUANTIZERS) == set(Precision) - {Precision.ADAPTIVE}


@pytest.mark.parametrize("precision", QUANTIZERS)
@pytest.mark.parametrize("exact", [((3, 700),), ((0, 1), (256, 300), (999, 1000)), ((0, 1000),)])
def test_ranges_that_hold_running_averages_are_not_coarsened(
    precision: Precision, exact: tuple[tuple[int, int], ...]
) -> None:
    """They come back to the bit, and the others as if they had been coded alone."""
    values = np.random.default_rng(3).standard_normal(1000).astype(np.float32) ** 3
    coded = encode(values, precision, exact)
    assert coded.size == size_bytes(1000, precision, exact)
    found = decode(coded, 1000, precision, exact)
    kept = np.zeros(1000, np.bool_)
    for start, stop in exact:
        kept[start:stop] = True
    if precision.on_host:
        np.testing.assert_array_equal(found[kept], values[kept])
        alone = decode(encode(values[~kept], precision), int((~kept).sum()), precision)
        np.testing.assert_array_equal(found[~kept], alone)
    else:
        np.testing.assert_array_equal(found, decode(encode(values, precision), 1000, precision))
    with pytest.raises(InvariantError, match="bytes"):
        decode(coded[:-1], 1000, precision, exact)
