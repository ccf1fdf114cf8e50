"""Is a contribution finite, and how long is it."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.layout.leaves import Unit
from islands.numerics.norms import clip, measure, unit_table
from islands.protocol.errors import InvariantError
from tests.numerics.oracle import AVERAGE, RDA

UNITS = (Unit(0, 10, AVERAGE), Unit(10, 5000, RDA), Unit(5010, 64, RDA))
SIZE = 5074


def values(scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(0).standard_normal(SIZE)).astype(np.float32)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-12, 1e-18, 1e-25, 1e-38, 1e15, 1e19, 1e37])
def test_norms_are_right_at_every_magnitude(scale: float) -> None:
    contribution = values(scale)
    measured = measure(contribution, UNITS)
    for unit, norm in zip(UNITS, measured.unit_norms, strict=True):
        part = contribution[unit.offset : unit.offset + unit.size].astype(np.float64)
        assert norm == pytest.approx(np.linalg.norm(part), rel=1e-6)
    whole = np.linalg.norm(contribution.astype(np.float64))
    assert measured.norm == pytest.approx(whole, rel=1e-6)
    assert measured.finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@given(where=st.integers(0, SIZE - 1))
def test_one_bad_element_anywhere_is_found(bad: float, where: int) -> None:
    contribution = values()
    contribution[where] = bad
    assert not measure(contribution, UNITS).finite


def test_the_largest_finite_numbers_are_finite() -> None:
    contribution = np.full(SIZE, np.finfo(np.float32).max, np.float32)
    measured = measure(contribution, UNITS)
    assert measured.finite
    assert measured.norm == pytest.approx(float(contribution[0]) * math.sqrt(SIZE))


def test_bfloat16_is_widened_and_then_measured() -> None:
    narrow = values().astype(ml_dtypes.bfloat16)
    measured = measure(narrow, UNITS)
    np.testing.assert_array_equal(measured.values, narrow.astype(np.float32))
    assert measured.norm == measure(narrow.astype(np.float32), UNITS).norm


def test_float32_is_not_copied() -> None:
    contribution = values()
    assert measure(contribution, UNITS).values is contribution


def test_clipping_shortens_and_does_not_turn() -> None:
    measured = measure(values(), UNITS)
    clipped = clip(measured, 0.5)
    again = measure(clipped.values, UNITS)
    assert again.norm == pytest.approx(0.5, rel=1e-6)
    np.testing.assert_allclose(again.unit_norms, clipped.unit_norms, rtol=1e-6)
    ratio = 0.5 / measured.norm
    np.testing.assert_allclose(clipped.values, ratio * measured.values, rtol=1e-6)


def test_what_is_short_enough_is_left_alone() -> None:
    measured = measure(values(), UNITS)
    assert clip(measured, measured.norm) is measured


def test_what_is_not_finite_cannot_be_clipped() -> None:
    with pytest.raises(InvariantError, match="refuse"):
        clip(measure(np.full(SIZE, np.nan, np.float32), UNITS), 1.0)


@pytest.mark.parametrize(
    "units",
    [
        (),
        UNITS[1:],
        UNITS[:2],
        (UNITS[0], UNITS[2]),
        (UNITS[0], UNITS[0], *UNITS[1:]),
        (*UNITS, Unit(SIZE, 0, RDA)),
    ],
)
def test_units_must_cover_the_fragment_in_order(units: tuple[Unit, ...]) -> None:
    with pytest.raises(InvariantError, match="unit"):
        unit_table(units, SIZE)
