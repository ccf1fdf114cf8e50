"""A loop of Flax NNX, whose model and optimizer are objects that are updated in place.

    python -m islands.syncer --run.budget_tokens 400000
    python examples/loops/nnx_loop.py 127.0.0.1:7070

The model keeps references to its arrays, so `donate=False`. Only the lines marked with ★ are
Islands'.
"""

import sys

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, PyTree

import islands  # ★

WIDTH, ROWS = 32, 16


class Network(nnx.Module):
    """Two layers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        """Draw the weights."""
        self.first = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.second = nnx.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Return a number for each row."""
        return self.second(jnp.tanh(self.first(x)))


def initial() -> PyTree:
    """Return the parameters."""
    return nnx.state(Network(nnx.Rngs(0)), nnx.Param)


@nnx.jit
def train_step(model: Network, optimizer: nnx.Optimizer[Network], x: Array, y: Array) -> Array:
    """Take one step in place."""
    loss, gradients = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
    optimizer.update(model, gradients)
    return loss


def main(address: str, name: str | None = None) -> None:
    """Train until the run is over."""
    model = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    params = nnx.state(model, nnx.Param)
    loss, step, random = None, 0, np.random.default_rng()
    with islands.join(  # ★
        address, params, tokens_per_step=ROWS, name=name, donate=False
    ) as run:
        while not run.over:  # ★
            nnx.update(model, run.boundary(nnx.state(model, nnx.Param), loss))  # ★
            x = random.standard_normal((ROWS, WIDTH), np.float32)
            y = np.sin(x.sum(1, keepdims=True) / 4)
            loss = train_step(model, optimizer, jnp.asarray(x), jnp.asarray(y))
            step += 1
    print(f"{step} steps, loss {float(loss or 0):.4f}; {run.why}")


if __name__ == "__main__":
    main(sys.argv[1])
