"""A small Gemma-style decoder over bytes, in Flax NNX.

    x ← √d · E[token]
    x ← x + Attention(norm(x));  x ← x + GeGLU(norm(x))        for each layer
    logits = cap · tanh(E norm(x) / cap)

with RMS normalisation (scale 1 + w), rotary positions, grouped or multi-query attention whose
queries and keys are normalised, optional sliding windows, and an embedding tied to the output.

Reference: Gemma 2 (2408.00118) §2 and Gemma 3 (2503.19786) §2, for all of the above.
Deviation: the projections that write to the residual stream start at zero, which at this size
learns faster; the tied embedding starts at d^-1/2, so that √d · E has unit variance.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Integer

from islands.errors import SettingsError


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Shape of a decoder.

    Attributes:
        vocabulary: Number of tokens; bytes have 256.
        width: d, the width of the residual stream.
        layers: Number of layers.
        heads: Number of query heads.
        kv_heads: Number of key and value heads; 1 is multi-query attention.
        head_width: Width of one head; even.
        hidden: Width inside the gated feed-forward.
        windows: Sliding window per layer, repeated as needed; a layer with None sees the whole
            context.
        soft_cap: Bound on the magnitude of the logits.
        rotary_base: Base wavelength of the rotary positions.
    """

    vocabulary: int = 256
    width: int = 128
    layers: int = 3
    heads: int = 4
    kv_heads: int = 1
    head_width: int = 32
    hidden: int = 384
    windows: tuple[int | None, ...] = (None,)
    soft_cap: float = 30.0
    rotary_base: float = 10_000.0

    def __post_init__(self) -> None:
        """Refuse shapes that cannot be built.

        Raises:
            SettingsError: A setting does not fit; the sentence says which, and what it must be.
        """
        if self.heads % self.kv_heads:
            raise SettingsError(f"heads is {self.heads}: no multiple of kv_heads {self.kv_heads}")
        if self.head_width % 2:
            raise SettingsError(f"head_width is {self.head_width}; rotary positions need it even")


class RmsNorm(nnx.Module):
    """x / rms(x) · (1 + w), computed in float32."""

    def __init__(self, width: int) -> None:
        self.scale = nnx.Param(jnp.zeros(width))

    def __call__(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """Normalise the last axis."""
        mean_square = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
        return (x * jax.lax.rsqrt(mean_square + 1e-6) * (1 + self.scale[...])).astype(x.dtype)


class Attention(nnx.Module):
    """Causal grouped-query attention with rotary positions."""

    def __init__(self, config: DecoderConfig, window: int | None, *, rngs: nnx.Rngs) -> None:
        self.config = config
        self.window = window
        width, head = config.width, config.head_width
        self.query = nnx.Param(_normal(rngs, (width, config.heads * head)))
        self.key = nnx.Param(_normal(rngs, (width, config.kv_heads * head)))
        self.value = nnx.Param(_normal(rngs, (width, config.kv_heads * head)))
        self.out = nnx.Param(jnp.zeros((config.heads * head, width)))
        self.query_norm = RmsNorm(head)
        self.key_norm = RmsNorm(head)

    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        """Attend from each position to those up to it, within the window."""
        c = self.config
        batch, time, _ = x.shape
        group = c.heads // c.kv_heads
        q = (x @ self.query[...]).reshape(batch, time, c.kv_heads, group, c.head_width)
        k = (x @ self.key[...]).reshape(batch, time, c.kv_heads, c.head_width)
        v = (x @ self.value[...]).reshape(batch, time, c.kv_heads, c.head_width)
        q = _rotate(self.query_norm(q), c.rotary_base)
        k = _rotate(self.key_norm(k), c.rotary_base)
        scores = jnp.einsum("btkgh,bskh->bkgts", q, k) / jnp.sqrt(c.head_width)
        distance = jnp.arange(time)[:, None] - jnp.arange(time)[None, :]
        seen = (distance >= 0) & (distance < (self.window or time))
        weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1)
        mixed = jnp.einsum("bkgts,bskh->btkgh", weights, v)
        return mixed.reshape(batch, time, c.heads * c.head_width) @ self.out[...]


class GatedFeedForward(nnx.Module):
    """(gelu(x G) ⊙ x U) D."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        self.gate = nnx.Param(_normal(rngs, (config.width, config.hidden)))
        self.up = nnx.Param(_normal(rngs, (config.width, config.hidden)))
        self.down = nnx.Param(jnp.zeros((config.hidden, config.width)))

    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        """Transform each position on its own."""
        return (jax.nn.gelu(x @ self.gate[...]) * (x @ self.up[...])) @ self.down[...]


class Layer(nnx.Module):
    """Attention and feed-forward: each reads the normalised stream, and its output is added."""

    def __init__(self, config: DecoderConfig, window: int | None, *, rngs: nnx.Rngs) -> None:
        self.attention_norm = RmsNorm(config.width)
        self.attention = Attention(config, window, rngs=rngs)
        self.feed_forward_norm = RmsNorm(config.width)
        self.feed_forward = GatedFeedForward(config, rngs=rngs)

    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        """Apply attention, then the feed-forward."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder(nnx.Module):
    """A decoder that computes next-token logits.

    Args:
        config: Shape of the model.
        rngs: Random keys for the initial parameters.
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        self.config = config
        self.embedding = nnx.Param(_normal(rngs, (config.vocabulary, config.width), config.width))
        windows = [config.windows[i % len(config.windows)] for i in range(config.layers)]
        self.layers = nnx.List([Layer(config, window, rngs=rngs) for window in windows])
        self.final_norm = RmsNorm(config.width)

    def __call__(self, tokens: Integer[Array, "b t"]) -> Float[Array, "b t v"]:
        """Compute the logits of the token after each position."""
        table = self.embedding[...]
        x = table[tokens.astype(jnp.int32)] * jnp.sqrt(self.config.width).astype(table.dtype)
        for layer in self.layers:
            x = layer(x)
        cap = self.config.soft_cap
        return cap * jnp.tanh(self.final_norm(x) @ table.T / cap)


def _rotate(x: Float[Array, "b t *heads h"], base: float) -> Float[Array, "b t *heads h"]:
    """Rotate pairs (i, i + h/2) of each head by position · base^(−2i/h)."""
    half = x.shape[-1] // 2
    wavelength = base ** (jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] / wavelength
    angle = angle.reshape(x.shape[1], *(1 for _ in x.shape[2:-1]), half)
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _normal(
    rngs: nnx.Rngs, shape: tuple[int, ...], fan_in: int | None = None
) -> Float[Array, "..."]:
    values: Array = jax.random.normal(rngs.params(), shape)
    scaled: Array = values * (fan_in or shape[0]) ** -0.5
    return scaled
