"""Muon as an inner optimizer: its step by hand, and what it leaves to AdamW."""

import jax
import numpy as np
import optax
import pytest
from jaxtyping import PyTree
from numpy.typing import NDArray

from islands.model.jax_trainer import JaxTrainer
from islands.protocol.errors import SettingsError
from islands.tasks.inner_optimizer import check_inner, inner_optimizer
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.stdlib_bytes import StdlibBytes

pytestmark = pytest.mark.usefixtures("quickly_compiled")

RATE = 0.01
Matrix = NDArray[np.float64]


def orthogonalised(matrix: Matrix) -> Matrix:
    """Five Newton–Schulz steps in float64, after a division by the Frobenius norm."""
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / (np.linalg.norm(x) + 1e-8)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


def updates(params: PyTree, gradients: list[PyTree], stack: int = 1) -> PyTree:
    chain = inner_optimizer(
        "muon",
        RATE,
        stack=lambda path: stack if "layers" in path else 1,
        hidden=lambda path: "layers" in path,
    )
    with jax.numpy_dtype_promotion("standard"):
        state, step = jax.jit(chain.init)(params), jax.jit(chain.update)
        for gradient in gradients:
            update, state = step(gradient, state, params)
    return update


def drawn(*shape: int, seed: int = 0, scale: float = 0.01) -> NDArray[np.float32]:
    """Small enough that the clip by global norm changes nothing."""
    rng = np.random.default_rng(seed)
    return (scale * rng.standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_the_step_by_hand(shape: tuple[int, int]) -> None:
    start = {"layers": drawn(*shape, scale=1.0)}
    one, other = drawn(*shape, seed=1), drawn(*shape, seed=2)
    found = updates(start, [{"layers": one}, {"layers": other}])["layers"]
    g, h = one.astype(np.float64), other.astype(np.float64)
    momentum = (0.95 * 0.05 * g + 0.05 * h) / (1 - 0.95**3)
    ahead = 0.95 * momentum + 0.05 * h / (1 - 0.95**2)
    scaled = 0.2 * np.sqrt(max(shape)) * orthogonalised(ahead)
    np.testing.assert_allclose(
        found, -RATE * (scaled + 0.1 * start["layers"]), rtol=2e-3, atol=1e-6
    )


def test_stacked_matrices_are_orthogonalised_one_by_one() -> None:
    params = {"layers": {"matrix": drawn(3, 5, 7), "scale": drawn(3, 7)}}
    slopes = {"layers": {"matrix": drawn(3, 5, 7, seed=1), "scale": drawn(3, 7, seed=2)}}
    found = updates(params, [slopes], stack=3)["layers"]
    for i in range(3):
        alone = updates(*(jax.tree.map(lambda x, i=i: x[i], t) for t in (params, [slopes])))
        np.testing.assert_allclose(found["matrix"][i], alone["layers"]["matrix"], rtol=1e-4)
        np.testing.assert_allclose(found["scale"][i], alone["layers"]["scale"], rtol=1e-5)


def test_what_is_no_hidden_matrix_is_trained_by_adamw() -> None:
    params = {"embedding": drawn(9, 4), "layers": {"scale": drawn(4)}}
    slopes = {"embedding": drawn(9, 4, seed=1), "layers": {"scale": drawn(4, seed=2)}}
    adamw = optax.adamw(RATE, b1=0.9, b2=0.99, weight_decay=0.1, nesterov=True)
    with jax.numpy_dtype_promotion("standard"):
        expected, _ = adamw.update(slopes, adamw.init(params), params)
    found = updates(params, [slopes])
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_the_byte_task_chooses_muon_for_the_matrices_of_its_layers() -> None:
    shape = DecoderConfig(width=32, layers=2, heads=2, head_width=16, hidden=64, scan=True)
    task = StdlibBytes(shape, length=32, inner="muon")
    sizes = jax.eval_shape(lambda key: task.init(key).params, jax.random.key(0))
    moments = jax.eval_shape(lambda params: task.optimizer(0.0).init(params), sizes)
    matrices = sum(x.size for x in jax.tree.leaves(sizes["layers"]) if x.ndim == 3)
    whole = sum(x.size for x in jax.tree.leaves(sizes))
    counted = [x for x in jax.tree.leaves(moments) if x.ndim > 0 and x.shape != (3,)]
    assert sum(x.size for x in counted) == 2 * whole - matrices
    alone = StdlibBytes(shape, length=32)
    assert JaxTrainer(task).layout.fingerprint != JaxTrainer(alone).layout.fingerprint


def test_an_unknown_inner_optimizer_is_refused() -> None:
    with pytest.raises(SettingsError, match="inner is 'mu'; it must be adamw or muon"):
        check_inner("mu")
