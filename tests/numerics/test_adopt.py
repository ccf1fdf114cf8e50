"""Taking over a published value."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from islands.numerics.adopt import delay_corrected, mix, overwrite

RNG = np.random.default_rng(0)
LOCAL, PUBLISHED, SENT = RNG.standard_normal((3, 1000)).astype(np.float32)


def test_overwrite_takes_the_published_value() -> None:
    """In the local dtype; nothing of the local value is left."""
    np.testing.assert_array_equal(overwrite(LOCAL, PUBLISHED), PUBLISHED)
    narrow = LOCAL.astype(ml_dtypes.bfloat16)
    adopted = overwrite(narrow, PUBLISHED)
    assert adopted.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(adopted, PUBLISHED.astype(ml_dtypes.bfloat16))


def test_mix_keeps_a_share_of_the_local_value() -> None:
    """α = 0.25: a quarter of the local value, three quarters of the published one."""
    local, published = np.array([4.0, 8.0], np.float32), np.array([0.0, 4.0], np.float32)
    assert mix(local, published, 0.25).tolist() == [1.0, 5.0]


@pytest.mark.parametrize(("keep", "wanted"), [(0.0, PUBLISHED), (1.0, LOCAL)])
def test_mix_at_its_ends_is_exact(keep: float, wanted: np.ndarray) -> None:
    """α = 0 is overwrite, α = 1 ignores the update."""
    np.testing.assert_array_equal(mix(LOCAL, PUBLISHED, keep), wanted)


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


def test_all_rules_run_under_jit_and_agree_with_numpy() -> None:
    """The same definitions serve on a device; the local dtype is kept."""
    for dtype in (np.float32, ml_dtypes.bfloat16):
        local = LOCAL.astype(dtype)
        arguments = (jnp.asarray(local), jnp.asarray(PUBLISHED))
        pairs = [
            (jax.jit(overwrite)(*arguments), overwrite(local, PUBLISHED)),
            (jax.jit(mix)(*arguments, 0.5), mix(local, PUBLISHED, 0.5)),
            (
                jax.jit(delay_corrected)(*arguments, jnp.asarray(SENT)),
                delay_corrected(local, PUBLISHED, SENT),
            ),
        ]
        for compiled, plain in pairs:
            assert compiled.dtype == dtype
            np.testing.assert_allclose(
                np.asarray(compiled, np.float32), plain.astype(np.float32), rtol=1e-6
            )
