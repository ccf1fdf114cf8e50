"""A loop of Equinox, whose model is a module of arrays and of all else.

    python -m islands.syncer --run.budget_tokens 400000
    python examples/loops/equinox_loop.py 127.0.0.1:7070

The arrays are exchanged; functions and numbers of the module stay in the loop. A learner that is
started again goes on with the moments of another. Only the lines marked with ★ are Islands'.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

import islands  # ★

WIDTH, ROWS = 32, 16
OPTIMIZER = optax.adam(3e-3)


def network() -> eqx.nn.MLP:
    """Return a network of two layers."""
    key = jax.random.key(0)
    return eqx.nn.MLP(WIDTH, 1, width_size=WIDTH, depth=1, activation=jnp.tanh, key=key)


def arrays_of(model: eqx.nn.MLP) -> PyTree:
    """Return the arrays of a network."""
    return eqx.filter(model, eqx.is_inexact_array)


def initial() -> PyTree:
    """Return the arrays of a new network."""
    return arrays_of(network())


@eqx.filter_value_and_grad
def loss_of(model: eqx.nn.MLP, x: Array, y: Array) -> Array:
    """Return the mean squared error, and its gradient."""
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@eqx.filter_jit
def train_step(
    model: eqx.nn.MLP, moments: PyTree, x: Array, y: Array
) -> tuple[eqx.nn.MLP, PyTree, Array]:
    """Take one step."""
    loss, gradients = loss_of(model, x, y)
    updates, moments = OPTIMIZER.update(gradients, moments, arrays_of(model))
    return eqx.apply_updates(model, updates), moments, loss


def main(address: str, name: str | None = None) -> None:
    """Train until the run is over."""
    model = network()
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    moments = OPTIMIZER.init(params)
    with islands.join(  # ★
        address, params, optimizer=moments, tokens_per_step=ROWS, name=name
    ) as run:
        model, moments = eqx.combine(run.params, rest), run.optimizer  # ★
        loss, step, random = None, 0, np.random.default_rng()
        while not run.over:  # ★
            params = run.boundary(arrays_of(model), loss, optimizer=moments)  # ★
            model, moments = eqx.combine(params, rest), run.optimizer  # ★
            x = random.standard_normal((ROWS, WIDTH), np.float32)
            y = np.sin(x.sum(1, keepdims=True) / 4)
            model, moments, loss = train_step(model, moments, jnp.asarray(x), jnp.asarray(y))
            step += 1
    print(f"{step} steps, loss {float(loss or 0):.4f}; {run.why}")


if __name__ == "__main__":
    main(sys.argv[1])
