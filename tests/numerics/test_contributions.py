"""A contribution: measured from another base, and its weight."""

import numpy as np
import pytest

from islands.numerics.contributions import rebase, weight
from islands.protocol.errors import InvariantError
from islands.protocol.settings.choices import Weighting

RNG = np.random.default_rng(0)
BASE = RNG.standard_normal(10_000).astype(np.float32)
LOCAL = (BASE + 1e-2 * RNG.standard_normal(10_000)).astype(np.float32)
CURRENT = (BASE + 1e-2 * RNG.standard_normal(10_000)).astype(np.float32)


def test_a_rebased_contribution_leads_from_the_current_value_to_the_local_one() -> None:
    moved = rebase(BASE - LOCAL, BASE, CURRENT)
    np.testing.assert_allclose(CURRENT - moved, LOCAL, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(rebase(BASE - LOCAL, BASE, BASE.copy()), BASE - LOCAL)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [(Weighting.TOKENS_SQUARED_PER_STEP, 1000), ("tokens", 100), (Weighting.UNIFORM, 1)],
)
def test_the_rule_is_chosen_by_member_or_name(rule: Weighting | str, expected: float) -> None:
    """All three rules of protocol §3.5, in both spellings."""
    assert weight(100, 10, rule) == expected


@pytest.mark.parametrize(("tokens", "steps"), [(100, 0), (-1, 10)])
def test_work_that_cannot_be_has_no_weight(tokens: int, steps: int) -> None:
    with pytest.raises(InvariantError):
        weight(tokens, steps)
