"""What learners move together below half a unit in the last place arrives: JAX."""

import jax
import jax.numpy as jnp
import pytest

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.model.jax_model import JaxModel
from islands.protocol.settings.choices import Adoption
from tests.model.drift import BEGINS, ULPS, ulps_moved

SHAPE = (4, 8)


@jax.jit
def _plus(leaves: tuple[jax.Array, ...], moved: float) -> tuple[jax.Array, ...]:
    return tuple(leaf + jnp.asarray(moved, leaf.dtype) for leaf in leaves)


def step(model: JaxModel, moved: float) -> None:
    model.local = _plus(model.local, moved)


@pytest.mark.parametrize("learners", [1, 4, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("adoption", [Adoption.OVERWRITE, Adoption.DELAY_CORRECTED])
def test_rounding_undoes_nothing(adoption: Adoption, dtype: str, learners: int) -> None:
    layout = plan([Leaf("w", SHAPE, dtype)], count=1, min_piece_bytes=4)
    models = [JaxModel.of(layout, [jnp.full(SHAPE, BEGINS, dtype)]) for _ in range(learners)]
    moved = ulps_moved(models, step, adoption, dtype, 32)
    assert moved == pytest.approx(ULPS, rel=0.02)


def test_a_learner_that_took_no_step_contributes_next_to_nothing() -> None:
    layout = plan([Leaf("w", SHAPE, "bfloat16")], count=1, min_piece_bytes=4)
    model = JaxModel.of(layout, [jnp.ones(SHAPE, jnp.bfloat16)])
    value = jax.random.normal(jax.random.key(1), (32,))
    model.adopt(0, jax.device_get(value))
    sent = jnp.asarray(memoryview(model.snapshot(0, "float32").buffer()).cast("f"))
    assert float(jnp.max(jnp.abs(sent / value))) < 2.0**-16
