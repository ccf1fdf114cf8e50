"""How much a contribution counts."""

import pytest

from islands.numerics.weights import weight
from islands.protocol.errors import InvariantError
from islands.protocol.settings.run import Weighting


def test_hundred_tokens_in_ten_steps_weigh_a_thousand() -> None:
    """Protocol §12: w = tokens² / steps by default."""
    assert weight(100, 10) == 1000


@pytest.mark.parametrize(
    ("rule", "expected"),
    [(Weighting.TOKENS_SQUARED_PER_STEP, 1000), ("tokens", 100), (Weighting.UNIFORM, 1)],
)
def test_the_rule_is_chosen_by_member_or_name(rule: Weighting | str, expected: float) -> None:
    """All three rules of protocol §3.5, in both spellings."""
    assert weight(100, 10, rule) == expected


@pytest.mark.parametrize(("tokens", "steps"), [(100, 0), (-1, 10)])
def test_work_that_cannot_be_has_no_weight(tokens: int, steps: int) -> None:
    """A contribution without a step is a bug of the caller, not a division by zero."""
    with pytest.raises(InvariantError):
        weight(tokens, steps)
