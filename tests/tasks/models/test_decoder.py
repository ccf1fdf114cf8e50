"""The decoder: causal, position-aware, and shaped as its configuration says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from islands.tasks.data.windows import TokenBatch
from islands.tasks.models import language
from islands.tasks.models.decoder import RmsNorm
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.models.language import bits_per_token, initial, nats, sample

pytestmark = pytest.mark.usefixtures("quickly_compiled")

logits = jax.jit(language.logits, static_argnums=0)
SMALL = DecoderConfig(vocabulary=256, width=16, layers=2, heads=4, kv_heads=2, head_width=8)


def awake(config: DecoderConfig) -> dict[str, object]:
    """Parameters none of which is zero, so that every path carries something."""
    rng = np.random.default_rng(1)
    params: dict[str, object] = jax.tree.map(
        lambda x: x + 0.3 * rng.standard_normal(x.shape, np.float32),
        jax.device_get(initial(config, jax.random.key(0))),
    )
    return params


def run(config: DecoderConfig, tokens: list[int]) -> jax.Array:
    row: jax.Array = logits(config, awake(config), jnp.array([tokens]))[0]
    return row


def test_a_position_sees_nothing_after_it() -> None:
    one, other = run(SMALL, [1, 2, 3, 4, 5, 6]), run(SMALL, [1, 2, 3, 9, 5, 6])
    np.testing.assert_allclose(one[:3], other[:3], rtol=1e-5, atol=1e-5)
    assert not np.allclose(one[3:], other[3:], atol=1e-3)


def test_a_sliding_window_forgets() -> None:
    narrow = DecoderConfig(
        width=16, layers=2, heads=4, kv_heads=2, head_width=8, windows=(2,), hidden=32
    )
    one, other = run(narrow, [1, 2, 3, 4, 5, 6]), run(narrow, [9, 2, 3, 4, 5, 6])
    assert not np.allclose(one[2], other[2], atol=1e-4)
    np.testing.assert_allclose(one[3:], other[3:], rtol=1e-5, atol=1e-5)


def test_positions_matter() -> None:
    assert not np.allclose(run(SMALL, [1, 2, 3])[-1], run(SMALL, [2, 1, 3])[-1], atol=1e-3)


def test_logits_are_capped() -> None:
    params = jax.tree.map(lambda x: np.float32(100) * x, awake(SMALL))
    assert np.abs(logits(SMALL, params, jnp.array([[1, 2, 3]]))).max() <= SMALL.soft_cap


def test_one_key_head_may_serve_all_query_heads() -> None:
    tied = DecoderConfig(width=16, layers=1, heads=4, kv_heads=1, head_width=8)
    full = DecoderConfig(width=16, layers=1, heads=4, kv_heads=4, head_width=8)
    params = awake(tied)
    wide = jax.tree_util.tree_map_with_path(
        lambda path, x: np.tile(x, (1, 4)) if path[-1].key in {"key", "value"} else x, params
    )
    tokens = jnp.array([[3, 1, 4, 1, 5]])
    np.testing.assert_allclose(
        logits(tied, params, tokens), logits(full, wide, tokens), rtol=1e-4, atol=1e-4
    )


def test_rms_norm_by_hand() -> None:
    normed = RmsNorm(2)(jnp.array([3.0, 4.0]))
    np.testing.assert_allclose(normed, np.array([3.0, 4.0]) / np.sqrt(12.5), rtol=1e-5)


def batch_of(rows: list[list[int]], weight: list[float]) -> TokenBatch:
    return TokenBatch(np.array(rows, np.uint8), np.array(weight, np.float32))


def test_the_loss_is_the_mean_negative_log_likelihood() -> None:
    params = awake(SMALL)
    rows = [[5, 6, 7, 8], [1, 1, 2, 3], [0, 0, 0, 0]]
    batch = batch_of(rows, [1, 1, 0])
    scores = np.asarray(logits(SMALL, params, jnp.array(rows)[:, :-1]), np.float64)
    log_p = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    expected = -np.mean([log_p[r, t, rows[r][t + 1]] for r in range(2) for t in range(3)])
    loss = nats(SMALL, params, jnp.asarray(batch.tokens), jnp.asarray(batch.weight))
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    bits = bits_per_token(SMALL, params, [batch])
    np.testing.assert_allclose(bits, expected / np.log(2), rtol=1e-4)


def test_bits_per_byte_weighs_batches_by_their_bytes() -> None:
    params = awake(SMALL)
    one, other = batch_of([[1, 2], [3, 4]], [1, 1]), batch_of([[5, 6], [0, 0]], [1, 0])
    parts = [bits_per_token(SMALL, params, [b]) for b in (one, other)]
    both = bits_per_token(SMALL, params, [one, other])
    np.testing.assert_allclose(both, (2 * parts[0] + parts[1]) / 3, rtol=1e-5)


def added(prompt: bytes, count: int, **rest: float) -> bytes:
    return b"".join(sample(SMALL, awake(SMALL), prompt, count, context=8, **rest))  # type: ignore[arg-type]


def test_a_sample_has_so_many_bytes_and_repeats() -> None:
    text = added(b"def f", 20)
    assert len(text) == 20
    assert text == added(b"def f", 20)
    assert text != added(b"def f", 20, seed=1)
    assert text.startswith(added(b"def f", 3))


def test_a_cold_sample_takes_the_likeliest_byte_of_its_context() -> None:
    params = awake(SMALL)
    prompt = b"a prompt longer than its context"
    text = prompt + added(prompt, 20, temperature=0.0)
    for place in range(len(prompt), len(text)):
        seen = np.array([list(text[place - 8 : place])])
        assert np.argmax(logits(SMALL, params, seen)[0, -1]) == text[place]
