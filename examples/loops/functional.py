"""A functional train step with scanned layers and a donated state, as large trainers have it.

    python -m islands.syncer --run.budget_tokens 400000
    python examples/loops/functional.py 127.0.0.1:7070

The state of parameters and optimizer is one tree on a mesh of the loop's own, with Explicit axes;
parameters are cut over `model`, batches over `data`. The syncer leases the records to the loops, so
each is read once in a pass. Only the lines marked with ★ are Islands'.
"""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

import islands  # ★

LAYERS, WIDTH, ROWS, RECORDS = 4, 32, 16, 65_536
OPTIMIZER = optax.adam(3e-3)
ROWS_CUT = PartitionSpec("data")


def initial() -> PyTree:
    """Return parameters whose layers are stacked along their first axis."""
    keys = jax.random.split(jax.random.key(0), 2)
    layers = jax.random.normal(keys[0], (LAYERS, WIDTH, WIDTH)) * WIDTH**-0.5
    return {"layers": layers, "out": jax.random.normal(keys[1], (WIDTH, 1)) * WIDTH**-0.5}


def loss_of(params: PyTree, batch: tuple[Array, Array]) -> Array:
    """Return the mean squared error of a scanned residual network."""

    def layer(x: Array, weight: Array) -> tuple[Array, None]:
        return x + jnp.tanh(jnp.einsum("ri,io->ro", x, weight, out_sharding=ROWS_CUT)), None

    hidden, _ = jax.lax.scan(layer, batch[0], params["layers"])
    found = jnp.einsum("ri,io->ro", hidden, params["out"], out_sharding=ROWS_CUT)
    return jnp.mean((found - batch[1]) ** 2)


@partial(jax.jit, donate_argnums=0)
def train_step(state: PyTree, batch: tuple[Array, Array]) -> tuple[PyTree, Array]:
    """Take one step; the state is donated."""
    loss, gradients = jax.value_and_grad(loss_of)(state["params"], batch)
    updates, moments = OPTIMIZER.update(gradients, state["moments"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "moments": moments}, loss


def batch_of(indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the records with these indices, as a file of records would have them."""
    x = np.stack([np.random.default_rng(i).standard_normal(WIDTH, np.float32) for i in indices])
    return x, np.sin(x.sum(1, keepdims=True) / 4).astype(np.float32)


def main(address: str, name: str | None = None) -> None:
    """Train until the run is over."""
    mesh = jax.make_mesh((1, jax.device_count()), ("data", "model"))
    cut = NamedSharding(mesh, PartitionSpec(None, None, "model"))
    whole = NamedSharding(mesh, PartitionSpec())
    params = jax.device_put(initial(), {"layers": cut, "out": whole})
    moments = OPTIMIZER.init(params)
    with (
        jax.set_mesh(mesh),
        islands.join(  # ★
            *(address, params),
            optimizer=moments,
            tokens_per_step=ROWS,
            stacked=lambda path: path.startswith("layers"),
            records=RECORDS,
            name=name,
        ) as run,
    ):
        state = {"params": run.params, "moments": run.optimizer}  # ★
        loss, step = None, 0
        batches = run.batches(batch_of, ROWS)  # ★
        while not run.over:  # ★
            state["params"] = run.boundary(  # ★
                state["params"], loss, optimizer=state["moments"]
            )
            state["moments"] = run.optimizer  # ★
            if run.over:  # ★
                break  # ★
            batch = jax.device_put(next(batches), NamedSharding(mesh, PartitionSpec("data")))
            state, loss = train_step(state, batch)
            step += 1
    print(f"{step} steps, loss {float(loss or 0):.4f}; {run.why}")


if __name__ == "__main__":
    main(sys.argv[1])
