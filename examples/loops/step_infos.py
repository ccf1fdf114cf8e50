"""A trainer that yields what it knows of each step, as Levanter's does; its user only looks on.

    python -m islands.syncer --run.budget_tokens 400000
    python examples/loops/step_infos.py 127.0.0.1:7070

The trainer takes a hook that maps its state before each step, and is not changed otherwise. Only
the lines marked with ★ are Islands'.
"""

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

import islands  # ★

WIDTH, ROWS = 32, 16
OPTIMIZER = optax.adam(3e-3)


class TrainerState(NamedTuple):
    """The trainer's own state."""

    step: int
    params: PyTree
    moments: PyTree


class StepInfo(NamedTuple):
    """What a step tells."""

    state: TrainerState
    loss: Array


def initial() -> PyTree:
    """Return the parameters."""
    keys = jax.random.split(jax.random.key(0), 2)
    return {
        "first": jax.random.normal(keys[0], (WIDTH, WIDTH)) * WIDTH**-0.5,
        "second": jax.random.normal(keys[1], (WIDTH, 1)) * WIDTH**-0.5,
    }


@jax.jit
def update(params: PyTree, moments: PyTree, x: Array) -> tuple[PyTree, PyTree, Array]:
    """Take one step."""

    def loss_of(params: PyTree) -> Array:
        wanted = jnp.sin(x.sum(1, keepdims=True) / 4)
        return jnp.mean((jnp.tanh(x @ params["first"]) @ params["second"] - wanted) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(params)
    updates, moments = OPTIMIZER.update(gradients, moments)
    return optax.apply_updates(params, updates), moments, loss


def training_steps(
    state: TrainerState, before_step: Callable[[TrainerState], TrainerState]
) -> Iterator[StepInfo]:
    """Train without end, and yield after each step."""
    random = np.random.default_rng()
    while True:  # until nobody asks for another step
        state = before_step(state)
        x = random.standard_normal((ROWS, WIDTH), np.float32)
        params, moments, loss = update(state.params, state.moments, x)
        state = TrainerState(state.step + 1, params, moments)
        yield StepInfo(state, loss)


def main(address: str, name: str | None = None) -> None:
    """Train until the run is over."""
    with islands.join(address, initial(), tokens_per_step=ROWS, name=name) as run:  # ★

        def before_step(state: TrainerState) -> TrainerState:  # ★
            return state._replace(params=run.boundary(state.params))  # ★

        start = TrainerState(0, run.params, OPTIMIZER.init(run.params))
        for info in training_steps(start, before_step):
            if run.over:  # ★
                print(f"{info.state.step} steps, loss {float(info.loss):.4f}; {run.why}")
                break


if __name__ == "__main__":
    main(sys.argv[1])
