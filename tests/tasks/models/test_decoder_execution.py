"""How a decoder computes: stacked layers, recomputed activations, half precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PyTree

from islands.model.jax_trainer import JaxTrainer
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.models.language import initial, nats
from islands.tasks.stdlib_bytes import StdlibBytes
from tests.numerics.oracle import RDA
from tests.tasks.models.test_decoder import awake

pytestmark = pytest.mark.usefixtures("quickly_compiled")

SMALL = {"width": 16, "layers": 4, "heads": 4, "kv_heads": 2, "head_width": 8, "hidden": 24}
TOKENS = np.random.default_rng(5).integers(0, 256, (3, 13))


def config(**changes: object) -> DecoderConfig:
    """Four small layers whose windows alternate, so that a wrong window would show."""
    return DecoderConfig(**{**SMALL, "windows": (2, None), **changes})  # type: ignore[arg-type]


def stacked(params: PyTree) -> PyTree:
    """The same weights as a scanned decoder holds them."""
    layers = [params["layers"][i] for i in range(len(params["layers"]))]
    return {**params, "layers": jax.tree.map(lambda *x: np.stack(x), *layers)}


def value_and_grad(shape: DecoderConfig, params: PyTree) -> tuple[Array, PyTree]:
    @jax.jit
    def found(params: PyTree) -> tuple[Array, PyTree]:
        return jax.value_and_grad(
            lambda p: nats(shape, p, jnp.asarray(TOKENS), jnp.ones(len(TOKENS)))
        )(params)

    loss, gradient = found(params)
    return loss, gradient


def assert_close(one: PyTree, other: PyTree, tolerance: float = 2e-5) -> None:
    """Leaf by leaf, to float32 rounding."""
    flat, others = (jax.tree_util.tree_leaves_with_path(tree) for tree in (one, other))
    assert [path for path, _ in flat] == [path for path, _ in others]
    for (_, mine), (_, theirs) in zip(flat, others, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.quick("windows1-True")
@pytest.mark.parametrize(
    ("windows", "remat"), [((None,), False), ((2, None), True), ((1, 3, None), False)]
)
def test_scanned_layers_compute_what_separate_ones_do(
    windows: tuple[int | None, ...], *, remat: bool
) -> None:
    plain, scanned = config(windows=windows), config(windows=windows, scan=True, remat=remat)
    params = awake(plain)
    loss, gradient = value_and_grad(plain, params)
    other_loss, other_gradient = value_and_grad(scanned, stacked(params))
    np.testing.assert_allclose(loss, other_loss, rtol=1e-6)
    assert_close(stacked(gradient), other_gradient)


def test_equal_keys_give_equal_weights_in_both_forms() -> None:
    """So that `scan` alone changes no start of training."""
    key = jax.random.key(7)
    one, other = initial(config(), key), initial(config(scan=True), key)
    assert_close(stacked(jax.device_get(one)), other, 1e-7)


def test_recomputed_activations_change_no_gradient() -> None:
    params = awake(config())
    kept, again = value_and_grad(config(), params), value_and_grad(config(remat=True), params)
    np.testing.assert_allclose(kept[0], again[0], rtol=1e-6)
    assert_close(kept[1], again[1])


@pytest.mark.long("test_recomputed_activations_change_no_gradient")
def test_recomputed_activations_take_less_memory() -> None:
    def temporaries(*, remat: bool) -> int:
        shape = config(layers=12, scan=True, remat=remat)
        params = jax.eval_shape(lambda: initial(shape, jax.random.key(0)))
        tokens, ones = jnp.zeros((8, 65), jnp.int32), jnp.ones(8)
        step = jax.jit(jax.grad(lambda p: nats(shape, p, tokens, ones)))
        found = step.lower(params).compile().memory_analysis()
        assert found is not None
        return int(found.temp_size_in_bytes)

    assert temporaries(remat=True) < temporaries(remat=False) / 2


@pytest.mark.long("test_parameters_may_be_held_in_half_precision")
def test_half_precision_is_near_single_precision() -> None:
    single, half = config(scan=True), config(scan=True, dtype="bfloat16")
    params = awake(single)
    loss, gradient = value_and_grad(half, params)
    expected, direction = value_and_grad(single, params)
    assert loss.dtype == jnp.float32
    assert {str(x.dtype) for x in jax.tree.leaves(gradient)} == {"float32"}
    np.testing.assert_allclose(loss, expected, rtol=2e-2)
    assert loss != expected
    one = np.concatenate([np.ravel(x) for x in jax.tree.leaves(gradient)])
    other = np.concatenate([np.ravel(x) for x in jax.tree.leaves(direction)])
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.99


def test_parameters_may_be_held_in_half_precision() -> None:
    held = initial(config(param_dtype="bfloat16", dtype="bfloat16"), jax.random.key(2))
    assert {str(x.dtype) for x in jax.tree.leaves(held)} == {"bfloat16"}
    whole = initial(config(), jax.random.key(2))
    assert_close(
        jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), whole),
        jax.tree.map(lambda x: x.astype(jnp.float32), held),
        0,
    )
    layout = JaxTrainer(StdlibBytes(config(param_dtype="bfloat16"))).layout
    assert {leaf.dtype for leaf in layout.leaves} == {"bfloat16"}


def test_a_merge_cuts_stacked_layers_apart() -> None:
    wide = {"width": 64, "hidden": 128}
    plain = JaxTrainer(StdlibBytes(config(**wide)), 2).layout
    scanned = JaxTrainer(StdlibBytes(config(**wide, scan=True)), 2).layout
    sizes = [
        sorted((u.size, u.rule) for fragment in layout.fragments for u in fragment.units(RDA))
        for layout in (plain, scanned)
    ]
    assert sizes[0] == sizes[1]
    assert {leaf.stack for leaf in scanned.leaves} == {1, 4}
    assert scanned.size == plain.size


def test_how_it_is_computed_is_each_hosts_own() -> None:
    fingerprint = JaxTrainer(StdlibBytes(config())).layout.fingerprint
    own = StdlibBytes(config(dtype="bfloat16", remat=True))
    assert JaxTrainer(own).layout.fingerprint == fingerprint
    assert JaxTrainer(StdlibBytes(config(scan=True))).layout.fingerprint != fingerprint
