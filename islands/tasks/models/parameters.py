"""Initial values of parameters, and products with them."""

import jax
from flax import nnx
from jaxtyping import Array, Float

from islands.tasks.models.decoder_config import Precision


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
