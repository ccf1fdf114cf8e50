"""A model of a user's own leaves: boundaries without a task, and the leaves that are refused."""

from collections.abc import Sequence
from typing import cast

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from jaxtyping import Array
from numpy.typing import NDArray

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf, read
from islands.model.jax_model import JaxModel
from islands.model.placement import CompiledFunctions
from islands.protocol.errors import InvariantError, TaskError
from islands.protocol.settings.choices import Adoption

pytestmark = pytest.mark.usefixtures("quickly_compiled")

Floats = NDArray[np.float32]

LEAVES = (
    Leaf("embed", (40, 8)),
    Leaf("layers/w", (3, 8, 8), "bfloat16", stack=3),
    Leaf("layers/b", (3, 8), stack=3),
    Leaf("scale", ()),
)
LAYOUT = plan(LEAVES, count=2, min_piece_bytes=64)


def own_leaves(seed: int = 0) -> tuple[Array, ...]:
    """Leaves as an initialisation gives them: on a device from which JAX may move them."""
    keys = jax.random.split(jax.random.key(seed), len(LEAVES))
    return tuple(
        jax.random.normal(key, leaf.shape).astype(leaf.dtype)
        for key, leaf in zip(keys, LEAVES, strict=True)
    )


def one_device_mesh(*axes: str) -> Mesh:
    grid = np.array(jax.local_devices()[:1], dtype=object).reshape([1] * len(axes))
    return Mesh(grid, axes, axis_types=(AxisType.Explicit,) * len(axes))


def spread(leaves: Sequence[Array], mesh: Mesh) -> tuple[Array, ...]:
    spec = PartitionSpec()  # type: ignore[no-untyped-call]  # untyped in JAX
    return tuple(jax.device_put(leaf, NamedSharding(mesh, spec)) for leaf in leaves)


def host(model: JaxModel, fragment: int) -> Floats:
    return read(LAYOUT.fragments[fragment], [np.asarray(leaf) for leaf in model.local])


@jax.jit
def doubled(leaves: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(2 * leaf for leaf in leaves)


@pytest.mark.parametrize("axes", [(), ("x", "y")])
def test_boundaries_of_a_loop_of_the_users_own(axes: tuple[str, ...]) -> None:
    leaves = own_leaves()
    model = JaxModel.of(LAYOUT, spread(leaves, one_device_mesh(*axes)) if axes else leaves)
    base = [model.value(f) for f in range(2)]
    model.local = doubled(model.local)
    where = [leaf.sharding for leaf in model.local]
    for fragment, was in enumerate(base):
        sent = np.frombuffer(model.snapshot(fragment, "float32").buffer(), np.float32)
        np.testing.assert_array_equal(sent, was - host(model, fragment))
        np.testing.assert_array_equal(model.value(fragment), host(model, fragment))
    model.adopt(0, base[0])
    np.testing.assert_array_equal(model.value(0), base[0])
    np.testing.assert_array_equal(model.base[0], base[0])
    model.mix(1, base[1], 0.5)
    np.testing.assert_allclose(model.value(1), 1.5 * base[1], rtol=2.0**-7)
    model.carry_on(1, base[1] + 1, None)
    np.testing.assert_allclose(model.value(1), 1.5 * base[1] + 1, rtol=0.02, atol=0.02)
    assert [leaf.sharding for leaf in model.local] == where
    assert all(leaf.committed for leaf in model.local)
    assert model.finite()
    model.adopt(1, np.full_like(base[1], np.nan))
    assert not model.finite()


def test_an_adoption_donates_its_leaves_unless_told_not_to() -> None:
    for donate in (True, False):
        model = JaxModel.of(LAYOUT, own_leaves(), donate=donate)
        before = model.local
        model.adopt(0, model.value(0))
        changed = {piece.leaf for piece in LAYOUT.fragments[0].pieces}
        deleted = [leaf.is_deleted() for leaf in before]
        assert deleted == [donate and index in changed for index in range(len(before))]


def test_an_array_that_stands_in_two_places_is_adopted_in_one() -> None:
    layout = plan([Leaf("a", (64,)), Leaf("b", (64,))], count=2, min_piece_bytes=64)
    tied = jnp.ones(64)
    model = JaxModel.of(layout, [tied, tied])
    model.adopt(0, np.zeros(64, np.float32))
    values = sorted(float(model.value(f).sum()) for f in range(2))
    assert values == [0, 64]


def test_what_was_prepared_is_not_compiled_again_nor_by_an_equal_model() -> None:
    functions = CompiledFunctions()
    model = JaxModel.of(LAYOUT, own_leaves(), functions=functions)
    model.prepare("bfloat16", Adoption.DELAY_CORRECTED)
    compiled = dict(functions._compiled)  # noqa: SLF001  what is counted here
    other = JaxModel.of(LAYOUT, own_leaves(1), functions=functions)
    for each in (model, other):
        each.local = doubled(each.local)
        for fragment in range(2):
            sent = np.zeros(LAYOUT.fragments[fragment].size, np.float32)
            each.snapshot(fragment, "bfloat16").buffer()
            each.carry_on(fragment, each.value(fragment), None)
            each.carry_on(fragment, each.value(fragment), sent)
            each.adopt(fragment, each.value(fragment))
    assert functions._compiled == compiled  # noqa: SLF001
    assert not model.compiling


@pytest.mark.parametrize("axes", [(), ("x", "y")])
def test_an_adoption_compiles_no_step_anew(axes: tuple[str, ...]) -> None:
    step = jax.jit(lambda leaves: tuple(leaf * 2 for leaf in leaves))
    leaves = own_leaves()
    model = JaxModel.of(LAYOUT, spread(leaves, one_device_mesh(*axes)) if axes else leaves)
    model.local = step(model.local)
    compiled = step._cache_size()  # type: ignore[attr-defined]  # noqa: SLF001  JAX tells nowhere
    for fragment in (0, 1, 0):
        model.local = step(model.local)
        model.adopt(fragment, model.value(fragment))
    model.local = step(model.local)
    # A mesh of Explicit axes tells the results of a step in other words than its first arguments.
    assert step._cache_size() <= compiled + bool(axes)  # type: ignore[attr-defined]  # noqa: SLF001


def test_a_donated_leaf_is_named() -> None:
    layout_leaves = own_leaves()
    model = JaxModel.of(LAYOUT, layout_leaves)
    jax.jit(lambda x: x + 1, donate_argnums=0)(model.local[1]).block_until_ready()
    told = r"layers/w was deleted: it was donated to a step; hand in what the step returned"
    with pytest.raises(TaskError, match=told):
        model.local = model.local
    with pytest.raises(TaskError, match=told):
        JaxModel.of(LAYOUT, model.local)
    with pytest.raises(TaskError, match=told):
        model.finite()
    touching = next(f.index for f in LAYOUT.fragments if any(p.leaf == 1 for p in f.pieces))
    with pytest.raises(TaskError, match=told):
        model.snapshot(touching, "float32")


def refused(leaves: Sequence[object], says: str) -> None:
    with pytest.raises(TaskError, match=says):
        JaxModel.of(LAYOUT, cast("Sequence[Array]", leaves))


def test_leaves_that_cannot_be_handled_are_named() -> None:
    good, device = own_leaves(), jax.local_devices()[0]
    refused(good[:3], "3 leaves were handed in, but the layout of the run has 4")
    refused((*good[:3], np.float32(1)), "scale is a float32, which is on no device")
    whole = jnp.zeros((40, 8), jnp.int8)
    refused((whole, *good[1:]), "embed is int8: only floating leaves have an average")
    small = jax.device_put(np.zeros((40, 8), ml_dtypes.float4_e2m1fn), device)
    refused((small, *good[1:]), "embed is float4_e2m1fn, .* smaller than a byte")
    pinned = SingleDeviceSharding(device, memory_kind="pinned_host")
    away = jax.device_put(good[0], pinned)
    refused((away, *good[1:]), "embed is in memory of the kind 'pinned_host': move it")
    other = jnp.zeros((40, 9))
    told = r"embed is float32\[40, 9\], but float32\[40, 8\] in the layout of the run"
    refused((other, *good[1:]), told)
    meshed = spread(good, one_device_mesh("x"))
    refused((*good[:2], *meshed[2:]), "layers/b is on the mesh x 1 .* embed is on the sin")
    others = spread(good, one_device_mesh("y"))
    refused((*meshed[:3], others[3]), "scale is on the mesh y 1 .* embed is on the mesh x")


def test_a_step_that_returns_other_leaves_is_told() -> None:
    model = JaxModel.of(LAYOUT, own_leaves())
    good = model.local
    touching = next(f.index for f in LAYOUT.fragments if any(p.leaf == 1 for p in f.pieces))
    for changed, says in (
        (good[1].astype("float32"), r"layers/w is float32\[3, 8, 8\], but bfloat16"),
        (spread(good, one_device_mesh("x"))[1], "layers/w is on the mesh x 1 .* the model is on"),
    ):
        model.local = (good[0], changed, *good[2:])
        with pytest.raises(TaskError, match=says):
            model.snapshot(touching, "float32")


def test_a_value_of_another_length_is_our_own_mistake() -> None:
    model = JaxModel.of(LAYOUT, own_leaves())
    with pytest.raises(InvariantError, match="fragment 0 is float32"):
        model.adopt(0, np.zeros(3, np.float32))
