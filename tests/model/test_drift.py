"""What learners move together below half a unit in the last place arrives, in every framework."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from islands.layout.fragments import plan
from islands.layout.leaves import Layout, Leaf
from islands.model.interfaces import Snapshot
from islands.model.jax_model import JaxModel
from islands.protocol.settings.choices import Adoption, SnapshotPrecision

Floats = NDArray[np.float32]
SHAPE = (4, 8)
ULPS = 12
BEGINS = 1.0
ULP = {"float32": 2.0**-7, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Distance of 1 to the next number of a dtype; in float32, which is published, that of bfloat16."""


class Moved(Protocol):
    """The part of a model that boundaries use."""

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> Snapshot: ...

    def adopt(self, fragment: int, value: Floats) -> None: ...

    def carry_on(self, fragment: int, value: Floats, sent: Floats | None) -> None: ...


Step = Callable[[float], None]


@jax.jit
def _plus(leaves: tuple[jax.Array, ...], moved: float) -> tuple[jax.Array, ...]:
    return tuple(leaf + jnp.asarray(moved, leaf.dtype) for leaf in leaves)


def of_jax(layout: Layout, dtype: str) -> tuple[Moved, Step]:
    model = JaxModel.of(layout, [jnp.full(SHAPE, BEGINS, dtype)])

    def step(moved: float) -> None:
        model.local = _plus(model.local, moved)

    return model, step


def of_torch(layout: Layout, dtype: str) -> tuple[Moved, Step]:
    torch: Any = pytest.importorskip("torch")
    from islands.loops.torch_parameters import TorchModel

    tensor = torch.full(SHAPE, BEGINS, dtype=getattr(torch, dtype))
    return TorchModel(layout, [tensor]), tensor.add_


def ulps_moved(models: Sequence[tuple[Moved, Step]], adoption: Adoption, dtype: str) -> float:
    """Let one learner in turn step by an ulp, merge all with an outer rate of 1, and repeat.

    Each of M learners steps `ULPS` times, so that all move by so many ulps together. Returns by how
    many ulps the published value of fragment 0 has moved, as a mean of its elements.
    """
    published = np.full(np.prod(SHAPE), BEGINS, np.float32)
    for turn in range(ULPS * len(models)):
        models[turn % len(models)][1](ULP[dtype])
        sent = [
            np.frombuffer(model.snapshot(0, "float32").buffer(), np.float32) for model, _ in models
        ]
        published = published - np.mean(sent, axis=0, dtype=np.float32)
        for (model, _), own in zip(models, sent, strict=True):
            if adoption is Adoption.OVERWRITE:
                model.adopt(0, published)
            else:
                model.carry_on(0, published, own)
    return float(np.mean(published - BEGINS)) / ULP[dtype]


@pytest.mark.parametrize("learners", [1, 4, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("adoption", [Adoption.OVERWRITE, Adoption.DELAY_CORRECTED])
@pytest.mark.parametrize("made", [of_jax, of_torch])
def test_rounding_undoes_nothing(
    made: Callable[[Layout, str], tuple[Moved, Step]], adoption: Adoption, dtype: str, learners: int
) -> None:
    layout = plan([Leaf("w", SHAPE, dtype)], count=1, min_piece_bytes=4)
    moved = ulps_moved([made(layout, dtype) for _ in range(learners)], adoption, dtype)
    assert moved == pytest.approx(ULPS, rel=0.02)


def test_a_learner_that_took_no_step_contributes_next_to_nothing() -> None:
    layout = plan([Leaf("w", SHAPE, "bfloat16")], count=1, min_piece_bytes=4)
    model = JaxModel.of(layout, [jnp.ones(SHAPE, jnp.bfloat16)])
    value = jax.random.normal(jax.random.key(1), (32,))
    model.adopt(0, jax.device_get(value))
    sent = jnp.asarray(memoryview(model.snapshot(0, "float32").buffer()).cast("f"))
    assert float(jnp.max(jnp.abs(sent / value))) < 2.0**-16
