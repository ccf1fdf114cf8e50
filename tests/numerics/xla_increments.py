"""Increments as XLA applies them: decoded and added in one compiled function, apart from our code.

XLA may fuse the multiplication by a scale with the addition, and takes numbers below 2⁻¹²⁶ for
zero; so this shows whether every copy of a published value is the same bits wherever it is made.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from islands.protocol.settings.choices import Precision

BLOCK = 256
LEAST = 2.0**-126
Floats: TypeAlias = NDArray[np.float32]


def applied_by_xla(published: Floats, payload: bytes, precision: Precision) -> Floats:
    data = np.frombuffer(payload, np.uint8)
    blocks = -(-published.size // BLOCK)
    codes, scales = data[: -2 * blocks], data[-2 * blocks :].copy().view(np.uint16)
    if precision is Precision.FP4:
        factors = _fp4_factors(codes, published.size)
    else:
        factors = codes.view(np.int8).astype(np.float32)
    wide = (scales.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(fused(jnp.asarray(published), jnp.asarray(factors), jnp.asarray(wide)))


@jax.jit
def fused(published: jax.Array, factors: jax.Array, scales: jax.Array) -> jax.Array:
    """Return Θ ⊕ factor · scale, in one compiled function."""
    least, none = jnp.float32(LEAST), jnp.float32(0)
    wide = jnp.repeat(scales, BLOCK)[: factors.size]
    base = jnp.where(jnp.abs(published) < least, none, published)
    kept = jnp.where(jnp.abs(factors * wide) < least, none, factors)  # a fused term would stay
    total = base + kept * wide
    return jnp.where(jnp.abs(total) < least, none, total)


def _fp4_factors(codes: NDArray[np.uint8], size: int) -> Floats:
    """Return the share of the block's scale that each code stands for, with its sign."""
    levels = np.array([0.0, *(2.0**-power for power in range(6, -1, -1))], np.float32)
    found = np.empty(size, np.float32)
    for start in range(0, size, BLOCK):
        length = min(BLOCK, size - start)
        stride = (length + 1) // 2
        packed = codes[start // 2 : start // 2 + stride]
        both = np.concatenate([packed & 15, packed >> 4])[:length]
        found[start : start + length] = levels[both & 7] * np.where(both & 8, -1, 1)
    return found
