"""A small Gemma-style decoder over bytes, in Flax NNX.

    x ← √d · E[token]
    x ← x + Attention(norm(x));  x ← x + GeGLU(norm(x))        for each layer
    logits = cap · tanh(E norm(x) / cap)

with RMS normalisation (scale 1 + w), rotary positions, grouped or multi-query attention whose
queries and keys are normalised, optional sliding windows, and an embedding tied to the output.

The layers are separate modules, or with `scan` one module whose tensors are stacked along axis 0,
so that one layer is compiled for all; from equal weights both compute the same.

Reference: Gemma 2 (2408.00118) §2 and Gemma 3 (2503.19786) §2, for all of the above.
Deviation: the projections that write to the residual stream start at zero, which at this size
learns faster; the tied embedding starts at d^-1/2, so that √d · E has unit variance.
"""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Integer, PyTree

from islands.tasks.models.decoder_config import DecoderConfig, Precision

Window = int | Integer[Array, ""] | None
LayerFunction = Callable[[PyTree, Float[Array, "b t d"], Window], Float[Array, "b t d"]]


class RmsNorm(nnx.Module):
    """x / rms(x) · (1 + w), computed in float32."""

    def __init__(self, width: int, dtype: Precision = "float32") -> None:
        self.scale = nnx.Param(jnp.zeros(width, dtype))

    def __call__(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
        wide = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        scale = 1 + self.scale[...].astype(jnp.float32)
        return (wide * jax.lax.rsqrt(mean_square + 1e-6) * scale).astype(x.dtype)


class Attention(nnx.Module):
    """Causal grouped-query attention with rotary positions."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        self.config = config
        width, head, dtype = config.width, config.head_width, config.param_dtype
        self.query = nnx.Param(normal(rngs, (width, config.heads * head), dtype))
        self.key = nnx.Param(normal(rngs, (width, config.kv_heads * head), dtype))
        self.value = nnx.Param(normal(rngs, (width, config.kv_heads * head), dtype))
        self.out = nnx.Param(jnp.zeros((config.heads * head, width), dtype))
        self.query_norm = RmsNorm(head, dtype)
        self.key_norm = RmsNorm(head, dtype)

    def __call__(self, x: Float[Array, "b t d"], window: Window = None) -> Float[Array, "b t d"]:
        c = self.config
        batch, time, _ = x.shape
        group = c.heads // c.kv_heads
        q = product(x, self.query).reshape(batch, time, c.kv_heads, group, c.head_width)
        k = product(x, self.key).reshape(batch, time, c.kv_heads, c.head_width)
        v = product(x, self.value).reshape(batch, time, c.kv_heads, c.head_width)
        q = _rotate(self.query_norm(q), c.rotary_base)
        k = _rotate(self.key_norm(k), c.rotary_base)
        scores = jnp.einsum("btkgh,bskh->bkgts", q, k, preferred_element_type=jnp.float32)
        scores = scores / jnp.sqrt(c.head_width)
        distance = jnp.arange(time)[:, None] - jnp.arange(time)[None, :]
        seen = (distance >= 0) & (distance < (time if window is None else window))
        weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1).astype(x.dtype)
        mixed = jnp.einsum("bkgts,bskh->btkgh", weights, v)
        return product(mixed.reshape(batch, time, c.heads * c.head_width), self.out)


class GatedFeedForward(nnx.Module):
    """(gelu(x G) ⊙ x U) D."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        width, hidden, dtype = config.width, config.hidden, config.param_dtype
        self.gate = nnx.Param(normal(rngs, (width, hidden), dtype))
        self.up = nnx.Param(normal(rngs, (width, hidden), dtype))
        self.down = nnx.Param(jnp.zeros((hidden, width), dtype))

    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        return product(jax.nn.gelu(product(x, self.gate)) * product(x, self.up), self.down)


class Layer(nnx.Module):
    """Attention and feed-forward: each reads the normalised stream, and its output is added."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        self.attention_norm = RmsNorm(config.width, config.param_dtype)
        self.attention = Attention(config, rngs=rngs)
        self.feed_forward_norm = RmsNorm(config.width, config.param_dtype)
        self.feed_forward = GatedFeedForward(config, rngs=rngs)

    def __call__(self, x: Float[Array, "b t d"], window: Window = None) -> Float[Array, "b t d"]:
        x = x + self.attention(self.attention_norm(x), window)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder(nnx.Module):
    """A decoder that computes next-token logits."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        self.config = config
        shape, dtype = (config.vocabulary, config.width), config.param_dtype
        self.embedding = nnx.Param(normal(rngs, shape, dtype, fan_in=config.width))
        layers = [Layer(config, rngs=rngs) for _ in range(config.layers)]
        self.layers: Layer | nnx.List[Layer]
        self.layers = _stacked(layers) if config.scan else nnx.List(layers)
        self.final_norm = RmsNorm(config.width, dtype)

    def __call__(self, tokens: Integer[Array, "b t"]) -> Float[Array, "b t v"]:
        table = self.embedding[...].astype(self.config.dtype)
        x = table[tokens.astype(jnp.int32)] * jnp.sqrt(self.config.width).astype(table.dtype)
        layers = self.layers
        x = self._scanned(layers, x) if isinstance(layers, Layer) else self._each(layers, x)
        cap = self.config.soft_cap
        scores = jnp.matmul(self.final_norm(x), table.T, preferred_element_type=jnp.float32)
        return cap * jnp.tanh(scores / cap)

    def _each(self, layers: Iterable[Layer], x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        for layer, window in zip(layers, self.config.window_of_layers, strict=True):
            structure, values = nnx.split(layer)
            x = self._function(structure)(values, x, window)
        return x

    def _scanned(self, layers: Layer, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        structure, values = nnx.split(layers)
        apply = self._function(structure)
        whole = x.shape[1]
        windows = jnp.array([whole if w is None else w for w in self.config.window_of_layers])

        def step(
            x: Float[Array, "b t d"], each: tuple[PyTree, Integer[Array, ""]]
        ) -> tuple[Float[Array, "b t d"], None]:
            return apply(each[0], x, each[1]), None

        last: Array = jax.lax.scan(step, x, (values, windows))[0]
        return last

    def _function(self, structure: nnx.GraphDef[Layer]) -> LayerFunction:
        def apply(
            values: PyTree, x: Float[Array, "b t d"], window: Window
        ) -> Float[Array, "b t d"]:
            added: Array = nnx.merge(structure, values)(x, window)
            return added

        if not self.config.remat:
            return apply
        # Inside a scan XLA cannot undo the recomputation by merging it with the first computation.
        static = () if self.config.scan else (2,)
        return jax.checkpoint(apply, prevent_cse=not self.config.scan, static_argnums=static)


def _stacked(layers: list[Layer]) -> Layer:
    """Make one module of several, each of its tensors stacked along axis 0."""
    structure, first = nnx.split(layers[0])
    rest = [nnx.split(layer)[1] for layer in layers[1:]]
    merged: Layer = nnx.merge(structure, jax.tree.map(lambda *x: jnp.stack(x), first, *rest))
    return merged


def _rotate(x: Float[Array, "b t *heads h"], base: float) -> Float[Array, "b t *heads h"]:
    """Rotate pairs (i, i + h/2) of each head by position · base^(−2i/h), in float32."""
    half = x.shape[-1] // 2
    wavelength = base ** (jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] / wavelength
    angle = angle.reshape(x.shape[1], *(1 for _ in x.shape[2:-1]), half)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)


# --- parameters --------------------------------------------------------------------------------


def normal(
    rngs: nnx.Rngs, shape: tuple[int, ...], dtype: Precision, *, fan_in: int | None = None
) -> Float[Array, "..."]:
    """Draw normal values of variance 1/fan_in, by default that of a matrix x W.

    They are drawn in float32, so equal keys give equal values in every precision.
    """
    values: Array = jax.random.normal(rngs.params(), shape)
    scaled: Array = values * (fan_in or shape[0]) ** -0.5
    return scaled.astype(dtype)


def product(x: Float[Array, "b t i"], matrix: nnx.Param[Array]) -> Float[Array, "b t o"]:
    """Multiply by a parameter in the precision of x."""
    multiplied: Array = x @ matrix[...].astype(x.dtype)
    return multiplied
