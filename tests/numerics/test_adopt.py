"""Taking over a published value."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from islands.numerics.adopt import delay_corrected

RNG = np.random.default_rng(0)
LOCAL, PUBLISHED, SENT = RNG.standard_normal((3, 1000)).astype(np.float32)


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
    """The same definition serves on a device; the local dtype is kept."""
    local = LOCAL.astype(dtype)
    arguments = (jnp.asarray(local), jnp.asarray(PUBLISHED), jnp.asarray(SENT))
    compiled, plain = jax.jit(delay_corrected)(*arguments), delay_corrected(local, PUBLISHED, SENT)
    assert compiled.dtype == plain.dtype == dtype
    np.testing.assert_allclose(
        np.asarray(compiled, np.float32), plain.astype(np.float32), rtol=1e-6
    )
