"""Checkpoints of Orbax and data of Grain: a loop that is killed goes on from its own checkpoint.

    python -m islands.syncer --run.budget_tokens 400000
    python examples/loops/grain_loop.py 127.0.0.1:7070 ana

The checkpoint has parameters, moments, and how far the data was read. The run has newer parameters.
Only the lines marked with ★ are Islands'.
"""

import sys
from pathlib import Path

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jaxtyping import Array, PyTree

import islands  # ★

WIDTH, ROWS, RECORDS, SAVED_EVERY = 32, 16, 4096, 500
OPTIMIZER = optax.adam(3e-3)


def initial() -> PyTree:
    """Return the parameters."""
    keys = jax.random.split(jax.random.key(0), 2)
    return {
        "first": jax.random.normal(keys[0], (WIDTH, WIDTH)) * WIDTH**-0.5,
        "second": jax.random.normal(keys[1], (WIDTH, 1)) * WIDTH**-0.5,
    }


@jax.jit
def train_step(params: PyTree, moments: PyTree, x: Array) -> tuple[PyTree, PyTree, Array]:
    """Take one step."""

    def loss_of(params: PyTree) -> Array:
        wanted = jnp.sin(x.sum(1, keepdims=True) / 4)
        return jnp.mean((jnp.tanh(x @ params["first"]) @ params["second"] - wanted) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(params)
    updates, moments = OPTIMIZER.update(gradients, moments)
    return optax.apply_updates(params, updates), moments, loss


def record(index: int) -> np.ndarray:
    """Return one record, as a file of records would have it."""
    return np.random.default_rng(index).standard_normal(WIDTH, np.float32)


def batches(name: str) -> grain.DatasetIterator[np.ndarray]:
    """Return Grain's iterator over all records again and again, in an order of this name's own."""
    seed = int.from_bytes(name.encode(), "big") % 2**32
    data = grain.MapDataset.range(RECORDS).seed(seed).shuffle().repeat().map(record)
    return iter(data.batch(ROWS).to_iter_dataset())


def main(address: str, name: str, folder: str = "checkpoints") -> None:
    """Train until the run is over, from the newest checkpoint if there is one."""
    data, params, step, loss = batches(name), initial(), 0, None
    moments = OPTIMIZER.init(params)
    kept = ocp.CheckpointManager(
        (Path(folder) / name).absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=1)
    )
    if kept.latest_step() is not None:
        like = ocp.args.StandardRestore({"params": params, "moments": moments, "step": 0})
        parts = ocp.args.Composite(state=like, data=ocp.args.JsonRestore())
        saved = kept.restore(kept.latest_step(), args=parts)
        params, moments, step = (saved.state[name] for name in ("params", "moments", "step"))
        data.set_state(saved.data)
    with islands.join(address, params, tokens_per_step=ROWS, name=name) as run:  # ★
        params, began = run.params, step  # ★
        print(f"it reads from {data.get_state()}", flush=True)
        while not run.over:  # ★
            params = run.boundary(params, loss)  # ★
            params, moments, loss = train_step(params, moments, next(data))
            step += 1
            if step % SAVED_EVERY == 0:
                state = {"params": params, "moments": moments, "step": step}
                parts = ocp.args.Composite(
                    state=ocp.args.StandardSave(state), data=ocp.args.JsonSave(data.get_state())
                )
                kept.save(step, args=parts)
    kept.close()
    print(f"{step - began} steps, loss {float(loss or 0):.4f}; {run.why}")


if __name__ == "__main__":
    main(*sys.argv[1:])
