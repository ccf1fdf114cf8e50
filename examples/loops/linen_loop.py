"""A loop of Flax linen with a `TrainState`, which Islands joins by one wrapped line.

    python -m islands.syncer --run.budget_tokens 400000
    python examples/loops/linen_loop.py 127.0.0.1:7070

`around` wraps the step, so that a loop deep inside somebody's framework stays as it is. Only the
lines marked with ★ are Islands'.
"""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jaxtyping import Array, PyTree

import islands  # ★

WIDTH, ROWS = 32, 16


class Network(nn.Module):
    """Two layers."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Return a number for each row."""
        hidden = nn.tanh(nn.Dense(WIDTH)(x))
        return nn.Dense(1)(hidden)


def initial() -> PyTree:
    """Return the parameters."""
    return Network().init(jax.random.key(0), jnp.zeros((1, WIDTH)))["params"]


@jax.jit
def train_step(state: TrainState, x: Array, y: Array) -> tuple[TrainState, Array]:
    """Take one step."""

    def loss_of(params: PyTree) -> Array:
        return jnp.mean((state.apply_fn({"params": params}, x) - y) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def main(address: str, name: str | None = None) -> None:
    """Train until the run is over."""
    with islands.join(address, initial(), tokens_per_step=ROWS, name=name) as run:  # ★
        step = run.around(  # ★
            train_step,
            get=lambda state: state.params,
            put=lambda state, params: state.replace(params=params),
            loss=lambda result: result[1],
        )
        state = TrainState.create(apply_fn=Network().apply, params=run.params, tx=optax.adam(3e-3))
        number, random = 0, np.random.default_rng()
        while not run.over:  # ★
            x = random.standard_normal((ROWS, WIDTH), np.float32)
            state, loss = step(state, x, np.sin(x.sum(1, keepdims=True) / 4))
            number += 1
    print(f"{number} steps, loss {float(loss or 0):.4f}; {run.why}")


if __name__ == "__main__":
    main(sys.argv[1])
