"""Contributions against the momentum: hand values, the oracle, and what never changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics.norms import measure
from islands.numerics.outer import MOMENTUM_WEIGHT, STRENGTH, corrected, merge_with, outer_optimizer
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import Correction
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings
from tests.numerics import oracle

UNITS = (Unit(0, 30, "average"), Unit(30, 170, "rda"), Unit(200, 10, "average", stepped=False))
MOMENTUM = np.random.default_rng(1).standard_normal(210).astype(np.float32)


def opposing(seed: int, share: float, scale: float = 1.0) -> NDArray[np.float32]:
    """A direction with this share of the negative momentum in it."""
    noise = np.random.default_rng(seed).standard_normal(210)
    return (scale * (noise - share * MOMENTUM)).astype(np.float32)


def test_an_exactly_opposed_contribution_by_hand() -> None:
    """‖δ‖ = 2, ‖v‖ = 20, c = −1: β = 2 / (2 + 0.1·20) = 1/2, so half of it is left."""
    unit = (Unit(0, 2, "rda"),)
    momentum = np.array([0.0, 20.0], np.float32)
    found = corrected(measure(np.array([0.0, -2.0], np.float32), unit), momentum, unit)
    np.testing.assert_allclose(found.values, [0.0, -1.0], rtol=1e-6)
    assert found.norm == pytest.approx(1.0)


def test_what_is_orthogonal_to_the_momentum_stays() -> None:
    """δ = (3, −4) against v = (0, 10): c = −0.8, β = 0.8·5/(5 + 1), and 4 becomes 4(1 − β)."""
    unit = (Unit(0, 2, "rda"),)
    momentum = np.array([0.0, 10.0], np.float32)
    found = corrected(measure(np.array([3.0, -4.0], np.float32), unit), momentum, unit)
    np.testing.assert_allclose(found.values, [3.0, -4.0 / 3.0], rtol=1e-6)


@given(st.integers(0, 1000), st.sampled_from((-1.0, 0.1, 1.0, 30.0)))
def test_it_agrees_with_the_oracle(seed: int, share: float) -> None:
    """For directions that agree, oppose a little, and oppose altogether, of any length."""
    for scale in (1e-4, 1.0, 1e4):
        delta = opposing(seed, share, scale)
        found = corrected(measure(delta, UNITS), MOMENTUM, UNITS)
        expected = oracle.corrected(delta, MOMENTUM, UNITS, STRENGTH, MOMENTUM_WEIGHT)
        np.testing.assert_allclose(found.values, expected, atol=1e-6 * np.abs(delta).max())
        assert found.norm <= measure(delta, UNITS).norm * (1 + 1e-6)


def test_only_units_that_oppose_are_changed() -> None:
    """The others keep their bits, as do averages, and the contribution itself is not written to."""
    delta = opposing(0, 3.0)
    delta[:30] = MOMENTUM[:30]
    kept = delta.copy()
    found = corrected(measure(delta, UNITS), MOMENTUM, UNITS).values
    np.testing.assert_array_equal(delta, kept)
    np.testing.assert_array_equal(found[:30], delta[:30])
    np.testing.assert_array_equal(found[200:], delta[200:])
    assert np.abs(found[30:200] - delta[30:200]).max() > 0.1


def test_without_opposition_nothing_is_copied() -> None:
    """Nor from rest, where there is no momentum yet."""
    agreeing = measure(MOMENTUM, UNITS)
    assert corrected(agreeing, MOMENTUM, UNITS) is agreeing
    against = measure(-MOMENTUM, UNITS)
    assert corrected(against, np.zeros_like(MOMENTUM), UNITS) is against


@pytest.mark.parametrize(
    "outer",
    [
        OuterSettings(0.7, 0.5),
        OuterSettings(0.7, 0.5, optimizer="delayed_nesterov", delay_merges=2),
    ],
)
def test_the_outer_step_is_taken_on_corrected_contributions(outer: OuterSettings) -> None:
    """With either optimizer that has a momentum; what the tape tells is what was sent."""
    optimizer = outer_optimizer(outer)
    value = np.zeros(210, np.float32)
    state = {**optimizer.init(value), "momentum": MOMENTUM}
    delta = opposing(3, 2.0)
    with_it = merge_with(optimizer, value, state, [delta], [1.0], UNITS, correct=True)
    damped = corrected(measure(delta, UNITS), MOMENTUM, UNITS).values
    by_hand = merge_with(optimizer, value, state, [damped], [1.0], UNITS)
    np.testing.assert_array_equal(with_it.value, by_hand.value)
    assert with_it.norms == (measure(delta, UNITS).norm,)


@pytest.mark.parametrize(
    ("outer", "told"),
    [
        ({"momentum": 0.0}, "outer.correction is cosine; it needs an outer.momentum above 0"),
        ({"optimizer": "adam"}, "outer.correction is cosine, which optimizer adam does not take"),
    ],
)
def test_without_a_momentum_it_is_refused(outer: dict[str, object], told: str) -> None:
    """One sentence says what it is compared with."""
    settings = OuterSettings(**outer, correction=Correction.COSINE)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=told):
        RunSettings(outer=settings)
