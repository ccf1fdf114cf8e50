"""A mixture of experts in the place of a feed-forward: each token goes to its k best experts.

    p = softmax(x W)                                          router, in float32
    y = Σ_e g_e · (gelu(x G_e) ⊙ x U_e) D_e                   over the k largest p_e

where g_e = p_e if k = 1, so that the router learns, and else p_e divided by the sum of the k
largest. No token is dropped and there is no capacity: the b·t·k pairs of a token and an expert are
sorted by expert, and a ragged product multiplies each run of rows by the matrices of its expert.
The shapes depend on k alone, and where XLA has a kernel for it the arithmetic does too.

The balance loss is E · Σ_e f_e · mean(p_e), where f_e is the share of the pairs that went to e. It
is 1 if both are uniform and up to E if all tokens choose the same experts.

Reference: Switch Transformers (2101.03961) §2.2 for the balance loss and for k = 1; Mixtral
    (2401.04088) §2.1 for the weights of k > 1.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Integer

from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.models.parameters import normal


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
    """A router and its experts."""

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
