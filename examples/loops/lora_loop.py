"""A loop that trains low-rank adapters of a frozen base: only the adapters are exchanged.

    python -m islands.syncer --run.budget_tokens 400000
    python examples/loops/lora_loop.py 127.0.0.1:7070

Only the lines marked with ★ are Islands'.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

import islands  # ★

WIDTH, ROWS, RANK = 32, 16, 4
OPTIMIZER = optax.adam(3e-3)


def initial() -> PyTree:
    """Return a base, and adapters that change nothing yet."""
    keys = jax.random.split(jax.random.key(0), 3)
    base = {
        "first": jax.random.normal(keys[0], (WIDTH, WIDTH)) * WIDTH**-0.5,
        "second": jax.random.normal(keys[1], (WIDTH, 1)) * WIDTH**-0.5,
    }
    adapters = {"a": jax.random.normal(keys[2], (WIDTH, RANK)), "b": jnp.zeros((RANK, WIDTH))}
    return {"base": base, "adapters": adapters}


@jax.jit
def train_step(params: PyTree, moments: PyTree, x: Array, y: Array) -> tuple[PyTree, PyTree, Array]:
    """Take one step of the adapters."""

    def loss_of(adapters: PyTree) -> Array:
        first = params["base"]["first"] + adapters["a"] @ adapters["b"]
        return jnp.mean((jnp.tanh(x @ first) @ params["base"]["second"] - y) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(params["adapters"])
    updates, moments = OPTIMIZER.update(gradients, moments)
    adapters = optax.apply_updates(params["adapters"], updates)
    return {"base": params["base"], "adapters": adapters}, moments, loss


def main(address: str, name: str | None = None) -> None:
    """Train until the run is over."""
    loss, step, random = None, 0, np.random.default_rng()
    with islands.join(  # ★
        *(address, initial()),
        tokens_per_step=ROWS,
        name=name,
        trainable=lambda path: path.startswith("adapters/"),
    ) as run:
        params = run.params  # ★
        moments = OPTIMIZER.init(params["adapters"])
        while not run.over:  # ★
            params = run.boundary(params, loss)  # ★
            x = random.standard_normal((ROWS, WIDTH), np.float32)
            y = np.sin(x.sum(1, keepdims=True) / 4)
            params, moments, loss = train_step(params, moments, x, y)
            step += 1
    print(f"{step} steps, loss {float(loss or 0):.4f}; {run.why}")


if __name__ == "__main__":
    main(sys.argv[1])
