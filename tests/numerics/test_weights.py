"""How much a contribution counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.errors import InvariantError
from islands.numerics.weights import effective_count, weight
from islands.settings.run import Weighting


def test_hundred_tokens_in_ten_steps_weigh_a_thousand() -> None:
    """SPEC §12: w = tokens² / steps by default."""
    assert weight(100, 10) == 1000


@pytest.mark.parametrize(
    ("rule", "expected"),
    [(Weighting.TOKENS_SQUARED_PER_STEP, 1000), ("tokens", 100), (Weighting.UNIFORM, 1)],
)
def test_the_rule_is_chosen_by_member_or_name(rule: Weighting | str, expected: float) -> None:
    """All three rules of SPEC §3.5, in both spellings."""
    assert weight(100, 10, rule) == expected


@pytest.mark.parametrize(("tokens", "steps"), [(100, 0), (-1, 10)])
def test_work_that_cannot_be_has_no_weight(tokens: int, steps: int) -> None:
    """A contribution without a step is a bug of the caller, not a division by zero."""
    with pytest.raises(InvariantError):
        weight(tokens, steps)


def test_equal_weights_count_fully() -> None:
    """M equal contributions are M effective ones."""
    assert effective_count([7.0] * 5) == pytest.approx(5)


def test_one_dominant_weight_counts_as_one() -> None:
    """Contributions of no weight add nothing."""
    assert effective_count([3.0, 0.0, 0.0]) == 1
    assert effective_count([0.0, 0.0]) == 0


def test_extreme_weights_neither_overflow_nor_vanish() -> None:
    """Only ratios matter, also where squares would leave float64."""
    assert effective_count([1e300, 1e300]) == pytest.approx(2)
    assert effective_count([1e-300, 1e-300]) == pytest.approx(2)


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=16))
def test_effective_count_lies_between_one_and_all(weights: list[float]) -> None:
    """1 ≤ M_eff ≤ M for any positive weights."""
    assert 1 - 1e-12 <= effective_count(weights) <= len(weights) * (1 + 1e-12)
