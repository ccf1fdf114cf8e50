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
Added = tuple[Float[Array, "b t d"], Float[Array, ""]]  # the stream, and a layer's balance loss
LayerFunction = Callable[[PyTree, Float[Array, "b t d"], Window], Added]


class RmsNorm(nnx.Module):
    """x / rms(x) · (1 + w), computed in float32."""

    def __init__(self, width: int, dtype: Precision = "float32") -> None:
        self.scale = nnx.Param(jnp.zeros(width, dtype))

    def __call__(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """Normalise the last axis."""
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
        """Attend from each position to those up to it, within the window."""
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
        """Transform each position on its own."""
        return product(jax.nn.gelu(product(x, self.gate)) * product(x, self.up), self.down)


class Layer(nnx.Module):
    """Attention and feed-forward: each reads the normalised stream, and its output is added."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        self.attention_norm = RmsNorm(config.width, config.param_dtype)
        self.attention = Attention(config, rngs=rngs)
        self.feed_forward_norm = RmsNorm(config.width, config.param_dtype)
        self.feed_forward: GatedFeedForward | MixtureOfExperts
        if config.experts:
            self.feed_forward = MixtureOfExperts(config, rngs=rngs)
        else:
            self.feed_forward = GatedFeedForward(config, rngs=rngs)

    def __call__(self, x: Float[Array, "b t d"], window: Window = None) -> Added:
        """Apply attention, then the feed-forward; also return the experts' balance loss, or 0."""
        x = x + self.attention(self.attention_norm(x), window)
        normalised = self.feed_forward_norm(x)
        if isinstance(self.feed_forward, MixtureOfExperts):
            added, balance = self.feed_forward(normalised)
            return x + added, balance
        return x + self.feed_forward(normalised), jnp.zeros(())


class Decoder(nnx.Module):
    """A decoder that computes next-token logits.

    Args:
        config: Shape of the model.
        rngs: Random keys for the initial parameters.
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        self.config = config
        shape, dtype = (config.vocabulary, config.width), config.param_dtype
        self.embedding = nnx.Param(normal(rngs, shape, dtype, fan_in=config.width))
        layers = [Layer(config, rngs=rngs) for _ in range(config.layers)]
        self.layers: Layer | nnx.List[Layer]
        self.layers = _stacked(layers) if config.scan else nnx.List(layers)
        self.final_norm = RmsNorm(config.width, dtype)

    def __call__(self, tokens: Integer[Array, "b t"]) -> Float[Array, "b t v"]:
        """Compute the logits of the token after each position."""
        return self.balanced(tokens)[0]

    def balanced(
        self, tokens: Integer[Array, "b t"]
    ) -> tuple[Float[Array, "b t v"], Float[Array, ""]]:
        """Compute the logits, and the balance loss of the experts, averaged over the layers."""
        table = self.embedding[...].astype(self.config.dtype)
        x = table[tokens.astype(jnp.int32)] * jnp.sqrt(self.config.width).astype(table.dtype)
        layers = self.layers
        x, balance = (
            self._scanned(layers, x) if isinstance(layers, Layer) else self._each(layers, x)
        )
        cap = self.config.soft_cap
        scores = jnp.matmul(self.final_norm(x), table.T, preferred_element_type=jnp.float32)
        return cap * jnp.tanh(scores / cap), balance / self.config.layers

    def _each(self, layers: Iterable[Layer], x: Float[Array, "b t d"]) -> Added:
        total = jnp.zeros(())
        for layer, window in zip(layers, self.config.window_of_layers, strict=True):
            structure, values = nnx.split(layer)
            x, balance = self._function(structure)(values, x, window)
            total = total + balance
        return x, total

    def _scanned(self, layers: Layer, x: Float[Array, "b t d"]) -> Added:
        structure, values = nnx.split(layers)
        apply = self._function(structure)
        whole = x.shape[1]
        windows = jnp.array([whole if w is None else w for w in self.config.window_of_layers])

        def step(x: Float[Array, "b t d"], each: tuple[PyTree, Integer[Array, ""]]) -> Added:
            return apply(each[0], x, each[1])

        x, balances = jax.lax.scan(step, x, (values, windows))
        return x, jnp.sum(balances)

    def _function(self, structure: nnx.GraphDef[Layer]) -> LayerFunction:
        """Make a layer a function of its values."""

        def apply(values: PyTree, x: Float[Array, "b t d"], window: Window) -> Added:
            return nnx.merge(structure, values)(x, window)

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


# --- experts -----------------------------------------------------------------------------------


class Experts(nnx.Module):
    """The matrices of all experts, stacked along axis 0."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        inward = (config.experts, config.width, config.hidden)
        outward = (config.experts, config.hidden, config.width)
        dtype = config.param_dtype
        self.gate = nnx.Param(normal(rngs, inward, dtype, fan_in=config.width))
        self.up = nnx.Param(normal(rngs, inward, dtype, fan_in=config.width))
        self.down = nnx.Param(jnp.zeros(outward, dtype))

    def __call__(self, x: Float[Array, "n d"], counts: Integer[Array, " e"]) -> Float[Array, "n d"]:
        """Transform rows that are sorted by expert.

        Args:
            x: The rows of the first expert, then those of the next, and so on.
            counts: Number of rows of each expert.
        """
        gate, up, down = (m[...].astype(x.dtype) for m in (self.gate, self.up, self.down))
        opened = jax.nn.gelu(jax.lax.ragged_dot(x, gate, counts))
        hidden = opened * jax.lax.ragged_dot(x, up, counts)
        rows: Array = jax.lax.ragged_dot(hidden, down, counts)
        return rows


class MixtureOfExperts(nnx.Module):
    """A mixture of experts in the place of a feed-forward: each token goes to its k best experts.

        p = softmax(x W)                                          router, in float32
        y = Σ_e g_e · (gelu(x G_e) ⊙ x U_e) D_e                   over the k largest p_e

    where g_e = p_e if k = 1, so that the router learns, and else p_e divided by the sum of the k
    largest. No token is dropped and there is no capacity: the b·t·k pairs of a token and an expert
    are sorted by expert, and a ragged product multiplies each run of rows by the matrices of its
    expert. The shapes depend on k alone, and where XLA has a kernel for it the arithmetic does too.

    The balance loss is E · Σ_e f_e · mean(p_e), where f_e is the share of the pairs that went to e.
    It is 1 if both are uniform and up to E if all tokens choose the same experts.

    Reference: Switch Transformers (2101.03961) §2.2 for the balance loss and for k = 1; Mixtral
        (2401.04088) §2.1 for the weights of k > 1.
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        self.config = config
        shape = (config.width, config.experts)
        self.router = nnx.Param(normal(rngs, shape, config.param_dtype))
        self.experts = Experts(config, rngs=rngs)

    def __call__(self, x: Float[Array, "b t d"]) -> tuple[Float[Array, "b t d"], Float[Array, ""]]:
        """Transform each position by its experts; also return the balance loss."""
        k, count = self.config.experts_per_token, self.config.experts
        rows = x.reshape(-1, self.config.width)
        router = self.router[...].astype(jnp.float32)
        shares = jax.nn.softmax(rows.astype(jnp.float32) @ router, axis=-1)
        weights, chosen = jax.lax.top_k(shares, k)
        if k > 1:
            weights = weights / jnp.sum(weights, axis=-1, keepdims=True)

        pairs = chosen.reshape(-1)
        order = jnp.argsort(pairs, stable=True)
        counts = jnp.bincount(pairs, length=count).astype(jnp.int32)
        transformed = self.experts(rows[order // k], counts)
        back = jnp.argsort(order)
        each = transformed[back].reshape(len(rows), k, -1)
        mixed = jnp.sum(each * weights[..., None].astype(x.dtype), axis=1)
        return mixed.reshape(x.shape), balance(shares, counts)


def balance(shares: Float[Array, "n e"], counts: Integer[Array, " e"]) -> Float[Array, ""]:
    """Compute the balance loss E · Σ_e f_e · mean(p_e); 1 at uniform routing.

    Args:
        shares: p, the router's probabilities for each token.
        counts: Number of pairs that went to each expert; f is their share.
    """
    went = counts.astype(jnp.float32)
    went = went / jnp.sum(went)
    loss: Array = shares.shape[-1] * jnp.sum(went * jnp.mean(shares, axis=0))
    return loss


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
