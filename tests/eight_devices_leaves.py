"""Leaves cut over meshes of any kind, for a process that has eight devices.

`tests/model/test_placement.py` starts one. Not collected by name. To run it by hand:

    JAX_NUM_CPU_DEVICES=8 python -m pytest tests/eight_devices_leaves.py
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding
from jax.stages import Compiled
from jaxtyping import PyTree
from numpy.typing import NDArray

from islands.layout import leaves as on_host
from islands.layout.fragments import plan
from islands.layout.leaves import Fragment, Layout, Leaf, Piece, Role, layout_of
from islands.model import device_transfer as transfer
from islands.model.jax_model import JaxModel
from islands.model.leaf_checks import check_even
from islands.model.placement import CompiledFunctions, Placement, placed
from islands.protocol.errors import TaskError
from islands.protocol.settings.choices import Adoption, Pattern

Floats = NDArray[np.float32]
Arrays = Sequence[NDArray[np.generic]]
Spec = tuple[str | tuple[str, ...] | None, ...]

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
CASES = 2  # of each mesh
LEAVES = 4  # in each case

MESHES = {
    "one axis, explicit": ((8,), ("all",), (EXPLICIT,)),
    "two axes, automatic": ((2, 4), ("replica", "shard"), (AUTO, AUTO)),
    "two axes, explicit": ((4, 2), ("fsdp", "tensor"), (EXPLICIT, EXPLICIT)),
    "two axes, six devices": ((2, 3), ("x", "y"), (EXPLICIT, EXPLICIT)),
    "two axes, one of them of one": ((1, 8), ("x", "y"), (EXPLICIT, EXPLICIT)),
    "three axes, explicit": ((2, 2, 2), ("data", "fsdp", "tensor"), (EXPLICIT,) * 3),
    "three axes, mixed": ((2, 2, 2), ("a", "b", "c"), (AUTO, EXPLICIT, AUTO)),
}
"""Grids of devices, the names of their axes, and their types."""

SHAPES = (
    Leaf("scalar", ()),
    Leaf("vector", (48,)),
    Leaf("half", (24, 16), "bfloat16"),
    Leaf("wide", (6, 8, 24)),
    Leaf("stack", (8, 12, 8), stack=8),
    Leaf("low stack", (2, 24, 12), "bfloat16", stack=2),
    Leaf("deep stack", (2, 4, 12, 6), stack=8),
    Leaf("state", (12, 16), role=Role.STATE),
)


def mesh_of(name: str) -> Mesh:
    """One of the meshes, of the last devices in falling order."""
    grid, axes, types = MESHES[name]
    devices = jax.devices()[::-1][: math.prod(grid)]
    return Mesh(np.array(devices, dtype=object).reshape(grid), axes, axis_types=types)


def some_spec(shape: tuple[int, ...], mesh: Mesh, rng: np.random.Generator) -> PartitionSpec:
    """Cut a leaf over some of the axes, of which a dimension may have several, in any order."""
    cut: list[list[str]] = [[] for _ in shape]
    parts = [1] * len(shape)
    for name in rng.permutation(np.array(mesh.axis_names, dtype=object)):
        fits = [each for each, n in enumerate(shape) if n % (parts[each] * mesh.shape[name]) == 0]
        if fits and rng.random() < 0.85:
            chosen = fits[rng.integers(len(fits))]
            cut[chosen].append(name)
            parts[chosen] *= mesh.shape[name]
    named = [tuple(names) if len(names) > 1 else names[0] if names else None for names in cut]
    return spec(*named)


def spec(*named: str | tuple[str, ...] | None) -> PartitionSpec:
    return PartitionSpec(*named)  # type: ignore[no-untyped-call]  # untyped in JAX


def some_layout(leaves: Sequence[Leaf], rng: np.random.Generator) -> Layout:
    """Cut the leaves between rows, and spread the pieces over two fragments."""
    pieces: tuple[list[Piece], list[Piece]] = ([], [])
    for index, leaf in enumerate(leaves):
        inner = rng.permutation(np.arange(1, leaf.rows))[: rng.integers(0, 3)]
        for start, stop in pairwise([0, *sorted(inner.tolist()), leaf.rows]):
            size = leaf.size // leaf.rows * (stop - start)
            shape = (stop - start, *leaf.row_shape)
            each = pieces[rng.integers(2)]
            offset = sum(piece.size for piece in each)
            entry = leaf.rows // leaf.stack
            each.append(Piece(leaf.path, index, start, stop, shape, size, leaf.role, entry, offset))
    fragments = [
        Fragment(index, tuple(each), sum(piece.size for piece in each))
        for index, each in enumerate(each for each in pieces if each)
    ]
    return layout_of(leaves, fragments, Pattern.BALANCED, {})


def some_values(leaf: Leaf, rng: np.random.Generator) -> NDArray[np.generic]:
    """Numbers among which are those whose bits are lost most easily."""
    values = rng.standard_normal(leaf.shape).astype(np.float32)
    odd = np.array([0x80000000, 0x7FC10000, 0xFFC20000, 0x7F800000, 0x00010000], np.uint32)
    chosen = rng.random(leaf.shape) < 0.2
    values = np.where(chosen, rng.choice(odd.view(np.float32), leaf.shape), values)
    return values.astype(ml_dtypes.bfloat16 if leaf.dtype == "bfloat16" else np.float32)


class Boundary:
    """The functions of a boundary, compiled for one fragment of leaves that are on devices."""

    def __init__(
        self, layout: Layout, fragment: Fragment, place: Placement, shardings: Sequence[Sharding]
    ) -> None:
        cuts = {n: transfer.cut_of(x, len(layout.leaves[n].shape)) for n, x in enumerate(shardings)}
        self.shape: transfer.FragmentShape = transfer.shape_of(layout, fragment, cuts, place)
        self.fragment, self.place, self.shardings = fragment, place, shardings
        self.compiled: Compiled | None = None

    def put(self, value: Floats) -> jax.Array:
        padding = self.place.padded(len(value)) - len(value)
        put: jax.Array = jax.device_put(np.pad(value, (0, padding)), self.place.flat)
        return put

    def read(
        self,
        function: Callable[..., PyTree],
        leaves: Arrays,
        *before: jax.Array,
        lost: Floats | None = None,
    ) -> NDArray[np.generic]:
        """Call a function that gives a flat value; `lost` is what rounding took away."""
        arguments = (*before, *self._held(leaves, lost))
        flat = np.asarray(self._call(function, arguments, self.place.flat, ()))
        return flat[: self.fragment.size]

    def write(
        self,
        function: Callable[..., PyTree],
        leaves: Arrays,
        *behind: PyTree,
        lost: Floats | None = None,
    ) -> list[NDArray[np.generic]]:
        """Call a function that gives new leaves, which lie where those lay that it takes.

        Returns:
            The leaves, and behind them what rounding took away, if one of them rounds.
        """
        old, *beside = self._held(leaves, lost)
        where = tuple(leaf.sharding for leaf in old)
        flat = self.place.flat if any(transfer.rounds(leaf.dtype) for leaf in old) else None
        new, lost = self._call(function, (old, *beside, *behind), (where, flat), (0,))
        assert [leaf.sharding for leaf in new] == list(where)
        assert all(leaf.is_deleted() for leaf in old)
        taken = [] if lost is None else [np.asarray(lost)[: self.fragment.size]]
        return [*map(np.asarray, new), *taken]

    def _held(self, leaves: Arrays, lost: Floats | None) -> tuple[PyTree, ...]:
        taken = None if lost is None else self.put(lost.astype(transfer.LOST))
        return self._put_leaves(leaves), transfer.first_rows(self.fragment), taken

    def _put_leaves(self, leaves: Arrays) -> tuple[jax.Array, ...]:
        return tuple(
            jax.device_put(leaves[n], self.shardings[n]) for n in transfer.touched(self.fragment)
        )

    def _call(
        self,
        function: Callable[..., PyTree],
        arguments: tuple[PyTree, ...],
        to: PyTree,
        donate: tuple[int, ...],
    ) -> PyTree:
        bound = _bound(function, self.shape)
        prepared, described, placed_to = self.place.prepared(bound, arguments, None, to)
        placed_ = {} if placed_to is None else {"out_shardings": placed_to}
        jitted = jax.jit(prepared, donate_argnums=donate, **placed_)
        self.compiled = jitted.lower(*described).compile()
        return self.compiled(*arguments)


def same_bits(mine: NDArray[np.generic], theirs: NDArray[np.generic]) -> None:
    """Compare bits: −0 is not 0, and a NaN is only itself."""
    assert mine.dtype == theirs.dtype
    bits = np.uint16 if mine.dtype.itemsize == 2 else np.uint32
    np.testing.assert_array_equal(np.atleast_1d(mine).view(bits), np.atleast_1d(theirs).view(bits))


def boundaries(
    layout: Layout, fragment: Fragment, mesh: Mesh, specs: Sequence[PartitionSpec]
) -> tuple[Boundary, Boundary]:
    there = Placement(tuple(mesh.devices.flat), mesh)
    alone = placed(None)
    return (
        Boundary(layout, fragment, there, [NamedSharding(mesh, each) for each in specs]),
        Boundary(layout, fragment, alone, [alone.whole] * len(specs)),
    )


class Drawn:
    """Leaves drawn at random, one of their fragments, and the boundaries of both kinds."""

    def __init__(self, mesh: str, case: int) -> None:
        rng = np.random.default_rng([case, *mesh.encode()])
        chosen = [SHAPES[n] for n in rng.permutation(len(SHAPES))[:LEAVES]]
        layout = some_layout(chosen, rng)
        self.leaves = [some_values(leaf, rng) for leaf in layout.leaves]
        self.fragment = layout.fragments[rng.integers(len(layout.fragments))]
        grid = mesh_of(mesh)
        specs = [some_spec(leaf.shape, grid, rng) for leaf in layout.leaves]
        self.both = boundaries(layout, self.fragment, grid, specs)
        narrow = transfer.rounding(layout, self.fragment)
        flats = rng.standard_normal((4, self.fragment.size)).astype(np.float32)
        self.value, self.base, self.sent, lost = flats
        self.lost = lost * 2.0**-9 if narrow else None

    def read_alike(self, function: Callable[..., PyTree], *before: Floats) -> None:
        """Let both give a flat value, and compare it."""
        mine, theirs = (
            each.read(function, self.leaves, *map(each.put, before), lost=self.lost)
            for each in self.both
        )
        same_bits(mine, theirs)

    def written_alike(self, function: Callable[..., PyTree], *behind: Floats | np.float32) -> None:
        """Let both give new leaves and what rounding took away, and compare them."""
        results = [
            each.write(
                function,
                self.leaves,
                *(each.put(x) if isinstance(x, np.ndarray) else x for x in behind),
                lost=self.lost,
            )
            for each in self.both
        ]
        count = len(transfer.touched(self.fragment))
        for mine, theirs in zip(*(each[:count] for each in results), strict=True):
            same_bits(mine, theirs)
        for mine, theirs in zip(*(each[count:] for each in results), strict=True):
            one, other = mine.astype(np.float32), theirs.astype(np.float32)
            # XLA may contract a sum in float32, below what the leaves keep, in one of both.
            np.testing.assert_allclose(one, other, rtol=2.0**-7, atol=2.0**-20)


DRAWN = pytest.mark.parametrize(
    ("mesh", "case"), [(mesh, case) for mesh in MESHES for case in range(CASES)]
)


@DRAWN
def test_read_bits_are_those_of_one_device(mesh: str, case: int) -> None:
    drawn = Drawn(mesh, case)
    for each in drawn.both:
        same_bits(
            each.read(transfer.gather, drawn.leaves), on_host.read(drawn.fragment, drawn.leaves)
        )
    drawn.read_alike(partial(_difference, "bfloat16" if case else "float32"), drawn.base)


@DRAWN
def test_written_bits_are_those_of_one_device(mesh: str, case: int) -> None:
    drawn = Drawn(mesh, case)
    drawn.written_alike(transfer.overwrite, drawn.value)
    if case:
        drawn.written_alike(transfer.shift, drawn.value, drawn.base, drawn.sent)
    else:
        drawn.written_alike(transfer.mix, drawn.value, np.float32(0.3))


def _difference(dtype: str, shape: transfer.FragmentShape, *arguments: PyTree) -> jax.Array:
    return transfer.difference(shape, dtype, *arguments)


def _bound(function: Callable[..., PyTree], shape: transfer.FragmentShape) -> Callable[..., PyTree]:
    return lambda *arguments: function(shape, *arguments)


@pytest.mark.parametrize(
    ("leaf", "cut"),
    [
        (Leaf("rows", (64, 32)), (("c", "a"), "b")),
        (Leaf("rows", (64, 32)), (None, ("b", "c"))),
        (Leaf("stack", (8, 32, 16), stack=8), (("a", "b"), "c")),
        (Leaf("stack", (8, 32, 16), stack=8), ("c", ("b", "a"))),
        (Leaf("repeated", (64, 32)), ()),
    ],
    ids=["rows and within", "within", "stack and rows", "stack and rows twice", "repeated"],
)
@pytest.mark.parametrize("kind", [EXPLICIT, AUTO], ids=["explicit", "automatic"])
def test_no_more_than_the_fragment_travels(leaf: Leaf, cut: Spec, kind: AxisType) -> None:
    """A few rows of a leaf are moved without the others, and of a repeated one none are.

    Where axes of both kinds are mixed, JAX 0.12 cuts results otherwise first, and moves more.
    """
    mesh = jax.make_mesh((2, 2, 2), ("a", "b", "c"), axis_types=(kind,) * 3)
    size = leaf.size // leaf.rows * 4
    piece = Piece(leaf.path, 0, 5, 9, (4, *leaf.row_shape), size, leaf.role, 1)
    fragment = Fragment(0, (piece,), size)
    layout = layout_of([leaf], [fragment], Pattern.BALANCED, {})
    boundary = boundaries(layout, fragment, mesh, [spec(*cut)])[0]
    leaves = [some_values(leaf, np.random.default_rng(0))]
    boundary.read(transfer.gather, leaves)
    read = _collectives(boundary)
    assert bool(read) == bool(cut)
    boundary.write(transfer.overwrite, leaves, boundary.put(np.zeros(size, np.float32)))
    written = _collectives(boundary)
    assert set(written) == {"all-gather"}
    assert max([*read.values(), *written.values()]) <= size


def _collectives(boundary: Boundary) -> dict[str, int]:
    """The largest number of elements of each kind of collective."""
    assert boundary.compiled is not None
    found: dict[str, int] = {}
    text = boundary.compiled.as_text() or ""
    for shape, kind in re.findall(r"= \(?\w+\[([\d,]*)\]\S* (all-\w+|collective-\w+)[-(]", text):
        size = math.prod(map(int, filter(None, shape.split(","))))
        found[kind] = max(size, found.get(kind, 0))
    return found


def own_leaves(mesh: Mesh, *cuts: Spec) -> tuple[Layout, tuple[jax.Array, ...]]:
    """Leaves of a user's loop on a mesh, and their layout of two fragments."""
    shapes = [Leaf("w", (16, 24)), Leaf("stack", (4, 8, 16), "bfloat16", stack=4), Leaf("b", (24,))]
    rng = np.random.default_rng(7)
    leaves = tuple(
        jax.device_put(
            rng.standard_normal(leaf.shape).astype(leaf.dtype), NamedSharding(mesh, spec(*cut))
        )
        for leaf, cut in zip(shapes, cuts, strict=True)
    )
    return plan(shapes, count=2, min_piece_bytes=64), leaves


@pytest.mark.parametrize("mesh", ["two axes, explicit", "two axes, automatic", "three axes, mixed"])
def test_a_model_of_own_leaves_is_that_of_one_device(mesh: str) -> None:
    grid = mesh_of(mesh)
    one, *_, last = grid.axis_names
    layout, leaves = own_leaves(grid, ((last, one), None), (one, None, last), ())
    single = [jax.device_put(np.asarray(leaf), jax.devices()[0]) for leaf in leaves]
    step = jax.jit(lambda leaves: tuple(2 * leaf for leaf in leaves))
    functions = CompiledFunctions()
    models = [JaxModel.of(layout, leaves, functions=functions), JaxModel.of(layout, single)]
    for model in models:
        model.prepare("float32", Adoption.DELAY_CORRECTED)
        model.local = step(model.local)
    prepared = dict(functions._compiled)  # noqa: SLF001  what is counted here
    where = [leaf.sharding for leaf in models[0].local]
    step(models[0].local)
    counted = step._cache_size()  # type: ignore[attr-defined]  # noqa: SLF001  JAX tells nowhere
    for fragment in range(len(layout.fragments)):
        taken = [bytes(model.snapshot(fragment, "float32").buffer()) for model in models]
        assert taken[0] == taken[1]
        value = models[1].value(fragment) + 1
        for model in models:
            model.carry_on(fragment, value, np.frombuffer(taken[0], np.float32))
        same_bits(models[0].value(fragment), models[1].value(fragment))
    assert [leaf.sharding for leaf in models[0].local] == where
    assert functions._compiled == prepared  # noqa: SLF001
    step(models[0].local)
    assert step._cache_size() == counted  # type: ignore[attr-defined]  # noqa: SLF001
    assert models[0].finite()


def test_a_model_follows_a_step_that_cuts_a_leaf_otherwise() -> None:
    mesh = mesh_of("two axes, automatic")
    layout, leaves = own_leaves(mesh, (), ("replica",), ())
    model = JaxModel.of(layout, leaves)
    fragment = next(f.index for f in layout.fragments if any(p.path == "w" for p in f.pieces))
    value = model.value(fragment)
    model.local = (jax.device_put(model.local[0], NamedSharding(mesh, spec("shard"))), *leaves[1:])
    same_bits(model.value(fragment), value)
    model.adopt(fragment, value)
    assert model.local[0].sharding == NamedSharding(mesh, spec("shard"))
    same_bits(model.value(fragment), value)


def test_a_model_of_leaves_apart_is_refused() -> None:
    mesh, other = mesh_of("two axes, automatic"), mesh_of("two axes, explicit")
    layout, leaves = own_leaves(mesh, (), (), ())
    elsewhere = jax.device_put(leaves[2], NamedSharding(other, spec("fsdp")))
    with pytest.raises(TaskError, match=r"b is on the mesh fsdp 4 × tensor 2 .* w is on the mesh"):
        JaxModel.of(layout, (*leaves[:2], elsewhere))
    alone = jax.device_put(leaves[2], jax.devices()[3])
    with pytest.raises(TaskError, match=r"b is on the single device .* w is on the mesh replica 2"):
        JaxModel.of(layout, (*leaves[:2], alone))
    apart = [jax.device_put(leaf, jax.devices()[n]) for n, leaf in enumerate(leaves)]
    with pytest.raises(TaskError, match="stack is on the single device"):
        JaxModel.of(layout, apart)
    with pytest.raises(TaskError, match=r"w has a dimension of 6, .* the 4 parts of .*shard"):
        check_even("w", (8, 6), NamedSharding(mesh, spec("replica", "shard")))


def test_a_model_is_compiled_whatever_mesh_the_loop_has_set() -> None:
    mesh = mesh_of("two axes, automatic")
    layout, leaves = own_leaves(mesh, ("shard",), ("replica",), ())
    with jax.set_mesh(mesh_of("one axis, explicit")):
        model = JaxModel.of(layout, leaves)
        model.adopt(0, model.value(0))
        assert model.mark().shape == ()
        assert model.finite()
