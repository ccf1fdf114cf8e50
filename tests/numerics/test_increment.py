"""Quantised increments: every copy is the same bits, and what is left is sent later."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from islands.numerics.codecs import encode, size_bytes
from islands.numerics.increment import applied, quantised
from islands.protocol.settings.choices import Precision
from tests.numerics.xla_increments import LEAST, applied_by_xla

LOSSY = (Precision.INT8, Precision.FP4)
Floats = NDArray[np.float32]
RANGES = ((3, 90),)

FINITE = st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100)
TINY = st.floats(width=32, min_value=-(2.0**-120), max_value=2.0**-120)
VALUES = arrays.arrays(np.float32, st.sampled_from([1, 255, 256, 257, 600]), elements=FINITE | TINY)


def normal(seed: int, size: int = 5000) -> Floats:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def bits(values: Floats) -> list[int]:
    """The bits of every element, by which 0 and −0 differ too."""
    found: list[int] = values.view(np.uint32).tolist()
    return found


@pytest.mark.parametrize("precision", LOSSY)
@given(data=st.data())
def test_numpy_and_xla_make_the_same_bits(precision: Precision, data: st.DataObject) -> None:
    published = data.draw(VALUES)
    change = data.draw(arrays.arrays(np.float32, published.size, elements=FINITE | TINY))
    payload = encode(change, precision)
    here = applied(published, payload, precision)
    assert here is not None
    assert bits(here) == bits(applied_by_xla(published, payload.tobytes(), precision))
    assert not ((here != 0) & (np.abs(here) < LEAST)).any()


def test_a_term_below_the_smallest_normal_number_is_zero_where_it_is_fused() -> None:
    for scale, wanted in ((2.0**-120, LEAST), (2.0**-121, 0.0)):
        change = np.array([scale, scale / 64], np.float32)
        payload = encode(change, Precision.FP4)
        payload[0] = 0x17  # the largest level, and the least
        published = np.array([0.0, 1.5 * LEAST], np.float32)
        here = applied(published, payload, Precision.FP4)
        assert here is not None
        assert here.tolist() == [scale, 1.5 * LEAST + wanted]
        assert bits(here) == bits(applied_by_xla(published, payload.tobytes(), Precision.FP4))


@pytest.mark.parametrize("precision", LOSSY)
def test_values_of_a_model_are_the_same_bits_by_xla(precision: Precision) -> None:
    published, change = normal(1, 50_000), normal(2, 50_000) * 10.0 ** normal(3, 50_000)
    payload = encode(change.astype(np.float32), precision)
    here = applied(published, payload, precision)
    assert here is not None
    assert bits(here) == bits(applied_by_xla(published, payload.tobytes(), precision))


@pytest.mark.parametrize("precision", LOSSY)
def test_what_is_left_is_sent_later(precision: Precision) -> None:
    published, wanted, left = normal(0), normal(0).astype(np.float64), None
    moved = 0.0
    for number in range(200):
        step = normal(number + 1) * np.float32(0.01)
        exact = published + step
        made = quantised(published, exact, left, precision)
        published, left = made.value, made.remainder
        wanted += step
        moved = max(moved, float(np.abs(step).max()))
    assert left is not None
    np.testing.assert_allclose(published.astype(np.float64) + left, wanted, atol=2e-5)
    assert np.abs(published - wanted).max() < moved


@pytest.mark.parametrize("precision", LOSSY)
def test_a_receiver_makes_the_published_value(precision: Precision) -> None:
    published, left, copy = normal(0, 700), None, normal(0, 700)
    for number in range(500):
        exact = published + np.float32(0.02) * normal(number + 1, 700)
        made = quantised(published, exact, left, precision, RANGES)
        assert made.payload is not None
        assert made.payload.size == size_bytes(700, precision, RANGES)
        received = applied(copy, made.payload.tobytes(), precision, RANGES)
        assert received is not None
        published, left, copy = made.value, made.remainder, received
        assert bits(copy) == bits(published)


def test_averages_are_published_exactly() -> None:
    """Elements of `exact` ranges are the outer step's, bit for bit, and leave nothing."""
    published, exact = normal(1, 600), normal(2, 600)
    exact[300] = np.float32(-0.0)
    made = quantised(published, exact, None, Precision.FP4, [(10, 20), (256, 400)])
    assert made.remainder is not None
    for start, stop in ((10, 20), (256, 400)):
        assert bits(made.value[start:stop]) == bits(exact[start:stop])
        assert not made.remainder[start:stop].any()
    assert made.remainder.any()


def test_an_increment_by_hand() -> None:
    published = np.array([1.0, 2.0], np.float32)
    exact = published + np.array([127 / 64, 0.4 / 64], np.float32)
    made = quantised(published, exact, None, Precision.INT8)
    assert made.remainder is not None
    assert made.value.tolist() == [1 + 127 / 64, 2.0]
    assert made.remainder.tolist() == [0.0, float(exact[1]) - 2.0]
    again = quantised(made.value, made.value, made.remainder, Precision.INT8)
    np.testing.assert_allclose(again.value[1], exact[1], rtol=2e-3)


def test_sums_below_the_smallest_normal_number_are_zero() -> None:
    base = np.array([LEAST, LEAST / 2, -LEAST * 1.5, -0.0], np.float32)
    nothing = encode(np.zeros(4, np.float32), Precision.INT8)
    made = applied(base, nothing, Precision.INT8)
    assert made is not None
    assert bits(made) == bits(np.array([LEAST, 0.0, -LEAST * 1.5, 0.0], np.float32))


@pytest.mark.parametrize("precision", LOSSY)
def test_a_change_that_is_not_finite_is_published_as_it_is(precision: Precision) -> None:
    exact = np.array([1.0, np.inf], np.float32)
    made = quantised(np.ones(2, np.float32), exact, np.ones(2, np.float32), precision)
    assert made.payload is None
    assert made.remainder is None
    assert made.value is exact


@pytest.mark.parametrize("precision", LOSSY)
def test_a_scale_that_is_not_finite_is_seen(precision: Precision) -> None:
    payload = encode(normal(1, 300), precision)
    payload[-2:] = np.array([0x7FC0], np.uint16).view(np.uint8)
    assert applied(normal(2, 300), payload, precision) is None
