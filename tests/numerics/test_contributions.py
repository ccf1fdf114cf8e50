"""A contribution: its outer gradient in NumPy and under jit, its weight, and its adoption."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from islands.numerics.contributions import delay_corrected, outer_gradient, rebase, weight
from islands.protocol.errors import InvariantError
from islands.protocol.settings.choices import Weighting

RNG = np.random.default_rng(0)
BASE = RNG.standard_normal(10_000).astype(np.float32)
LOCAL = (BASE + 1e-2 * RNG.standard_normal(10_000)).astype(np.float32)
CURRENT = (BASE + 1e-2 * RNG.standard_normal(10_000)).astype(np.float32)


def test_it_points_from_the_local_value_to_the_base() -> None:
    base, local = np.array([1.0, 2.0], np.float32), np.array([0.5, 2.5], np.float32)
    assert outer_gradient(base, local).tolist() == [0.5, -0.5]


def test_jit_and_numpy_give_the_same_bits() -> None:
    compiled = jax.jit(outer_gradient)(jnp.asarray(BASE), jnp.asarray(LOCAL))
    np.testing.assert_array_equal(np.asarray(compiled), outer_gradient(BASE, LOCAL))


def test_it_is_within_half_an_ulp_of_the_exact_difference() -> None:
    exact = BASE.astype(np.float64) - LOCAL.astype(np.float64)
    np.testing.assert_array_equal(outer_gradient(BASE, LOCAL), exact.astype(np.float32))


def test_a_bfloat16_local_value_is_widened_before_the_difference() -> None:
    """A difference taken in bfloat16 would lose what was learned."""
    local = LOCAL.astype(ml_dtypes.bfloat16)
    wanted = BASE - local.astype(np.float32)
    np.testing.assert_array_equal(outer_gradient(BASE, local), wanted)
    compiled = jax.jit(outer_gradient)(jnp.asarray(BASE), jnp.asarray(local))
    np.testing.assert_array_equal(np.asarray(compiled), wanted)


def test_the_wire_dtype_is_rounded_to_from_float32() -> None:
    wanted = (BASE - LOCAL).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(outer_gradient(BASE, LOCAL, ml_dtypes.bfloat16), wanted)
    compiled = jax.jit(outer_gradient, static_argnums=2)(
        jnp.asarray(BASE), jnp.asarray(LOCAL), ml_dtypes.bfloat16
    )
    np.testing.assert_array_equal(np.asarray(compiled), wanted)


def test_the_result_is_a_new_buffer() -> None:
    assert not np.shares_memory(outer_gradient(BASE, LOCAL), LOCAL)


def test_a_rebased_contribution_leads_from_the_current_value_to_the_local_one() -> None:
    moved = rebase(outer_gradient(BASE, LOCAL), BASE, CURRENT)
    np.testing.assert_allclose(CURRENT - moved, LOCAL, rtol=1e-6, atol=1e-6)


def test_rebasing_on_the_same_version_changes_nothing() -> None:
    delta = outer_gradient(BASE, LOCAL)
    np.testing.assert_array_equal(rebase(delta, BASE, BASE.copy()), delta)


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
    with pytest.raises(InvariantError):
        weight(tokens, steps)


NOW, PUBLISHED, SENT = RNG.standard_normal((3, 1000)).astype(np.float32)


def test_delay_correction_keeps_progress_made_since_sending() -> None:
    """Sent at 1, now at 3, the merge moved 1 to 0.5: the two steps made since stay."""
    now, sent, new = (
        np.array([3.0], np.float32),
        np.array([1.0], np.float32),
        np.array([0.5], np.float32),
    )
    assert delay_corrected(now, new, sent).tolist() == [2.5]


def test_delay_correction_without_delay_is_overwrite() -> None:
    """Nothing was done since sending: to float32, the published value."""
    np.testing.assert_allclose(delay_corrected(SENT, PUBLISHED, SENT), PUBLISHED, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_it_runs_under_jit_and_agrees_with_numpy(dtype: type[np.generic]) -> None:
    local = NOW.astype(dtype)
    arguments = (jnp.asarray(local), jnp.asarray(PUBLISHED), jnp.asarray(SENT))
    compiled, plain = jax.jit(delay_corrected)(*arguments), delay_corrected(local, PUBLISHED, SENT)
    assert compiled.dtype == plain.dtype == dtype
    np.testing.assert_allclose(
        np.asarray(compiled, np.float32), plain.astype(np.float32), rtol=1e-6
    )
