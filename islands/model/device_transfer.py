"""Functions that run on the device between two steps: gather, difference, overwrite, shift.

Each takes the leaves that a fragment touches, the first row of each of its pieces, and this
device's share of what rounding took away. The rows are arguments, not constants, so fragments of
equal shape share one compiled function: a decoder of many layers needs a handful. Rows, not
elements, are counted, as a leaf may have more than 2³¹ elements and JAX's indices have 32 bits.

On a mesh the functions run once on each device (`Placement.prepared`), under `jax.shard_map`. A
flat value is then the device's even share; never more than the one fragment travels between
devices. A leaf may lie on the mesh in any way that a `PartitionSpec` can tell: each of its
dimensions is cut evenly over none, one or several axes, and over the other axes it is repeated. So
a device has a *rectangle* of it, which the functions take for the leaf. On one device both are the
whole, and nothing is added.

A leaf's leading dimensions count its rows. The parts of a row are gathered along its own dimensions
as they are. Where dimensions that count rows are cut, a range of rows lies on some devices, and
where it begins is known only at run time: each device gives the rows that it has, and 0 for others.

A leaf narrower than float32 rounds what is written into it. What rounding took away is kept beside
it and counts as a part of the local value: else it would return as a contribution of the learner,
and undo whatever all learners move together by less than half a unit in the last place.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, Sharding
from jaxtyping import Array, Bool, Float, Int, PyTree
from numpy.typing import NDArray

from islands.layout.leaves import Fragment, Layout, Leaf, Role
from islands.model.placement import Placement

Cut = tuple[tuple[str, ...], ...]
"""For each dimension of a leaf, the axes of the mesh over which it is cut, the slowest first."""


@dataclass(frozen=True, slots=True)
class PieceShape:
    """A piece without the row at which it starts.

    Attributes:
        leaf: Index among the leaves that the function is given.
        shape: Shape of the whole leaf.
        leaf_rows: Number of rows of the leaf, each an entry along its leading axes.
        rows: Number of rows of the piece.
        cut: How the leaf is cut over the devices.
        additive: Whether the changes made by steps add up; those of running averages do not.
    """

    leaf: int
    shape: tuple[int, ...]
    leaf_rows: int
    rows: int
    cut: Cut
    additive: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape) // self.leaf_rows * self.rows

    @property
    def row_axes(self) -> int:
        """How many leading axes of the leaf count its rows."""
        lengths = range(len(self.shape) + 1)
        return next(n for n in lengths if math.prod(self.shape[:n]) == self.leaf_rows)

    @property
    def cut_rows(self) -> tuple[str, ...]:
        """The axes of the mesh over which dimensions that count rows are cut."""
        return tuple(name for names in self.cut[: self.row_axes] for name in names)

    @property
    def cut_within(self) -> list[tuple[int, tuple[str, ...]]]:
        """The dimensions of an array of rows that are cut within each row, and over which axes."""
        within = enumerate(self.cut[self.row_axes :], start=1)
        return [(dimension, names) for dimension, names in within if names]


def piece_shape(
    index: int, leaf: Leaf, rows: int, cut: Cut, *, additive: bool = True
) -> PieceShape:
    """Return the shape of a piece of so many rows of a leaf.

    A whole leaf whose rows are cut counts as a single row: it is gathered along all of its
    dimensions, so that no device needs to give 0 for rows that others have.
    """
    piece = PieceShape(index, leaf.shape, leaf.rows, rows, cut, additive)
    if rows == leaf.rows and piece.cut_rows:
        return replace(piece, leaf_rows=1, rows=1)
    return piece


def cut_of(sharding: Sharding, dimensions: int) -> Cut:
    """Return how a leaf of so many dimensions is cut; axes of a single device cut nothing."""
    if not isinstance(sharding, NamedSharding):
        return ((),) * dimensions
    found = []
    for named in sharding.spec:
        names = named if isinstance(named, tuple) else () if named is None else (named,)
        found.append(tuple(name for name in names if sharding.mesh.shape[name] > 1))
    return (*found, *((),) * (dimensions - len(found)))


def read_rows(piece: PieceShape, leaf: Array, start: Int[Array, ""]) -> Array:
    """Read rows of a leaf from `start` on, raveled, whole on every device. Nothing is donated."""
    rows = _in_rows(piece, leaf)
    if piece.cut_rows:
        own = _own_rows(piece, leaf.shape, start)
        part = _sum_of_one(rows.at[own].get(mode="fill", fill_value=0), piece.cut_rows)
    else:
        part = jax.lax.dynamic_slice_in_dim(rows, start, piece.rows)
    for dimension, names in piece.cut_within:
        part = jax.lax.all_gather(part, names, axis=dimension, tiled=True)
    return part.reshape(-1)


def write_rows(piece: PieceShape, leaf: Array, start: Int[Array, ""], flat: Array) -> Array:
    """Return a leaf with rows from `start` on overwritten by whole ones, which are raveled."""
    rows = _in_rows(piece, leaf)
    part = flat.reshape(piece.rows, *piece.shape[piece.row_axes :])
    for dimension, names in piece.cut_within:
        length = rows.shape[dimension]
        first = jax.lax.axis_index(names) * length
        part = jax.lax.dynamic_slice_in_dim(part, first, length, dimension)
    if piece.cut_rows:
        rows = rows.at[_own_rows(piece, leaf.shape, start)].set(part, mode="drop")
    else:
        rows = jax.lax.dynamic_update_slice_in_dim(rows, part, start, axis=0)
    return rows.reshape(leaf.shape)


def _in_rows(piece: PieceShape, leaf: Array) -> Array:
    """Reshape this device's rectangle of a leaf into its rows."""
    axes = piece.row_axes
    return leaf.reshape(math.prod(leaf.shape[:axes]), *leaf.shape[axes:])


def _own_rows(
    piece: PieceShape, rectangle: tuple[int, ...], start: Int[Array, ""]
) -> Int[Array, " rows"]:
    """Index each row of a piece among this device's rows; past their end if another has it."""
    index = start + jnp.arange(piece.rows, dtype=jnp.int32)
    here, mine = jnp.zeros_like(index), jnp.ones_like(index, jnp.bool_)
    for axis in range(piece.row_axes):
        length, own_length = piece.shape[axis], rectangle[axis]
        own = index // math.prod(piece.shape[axis + 1 : piece.row_axes]) % length
        if piece.cut[axis]:
            own -= jax.lax.axis_index(piece.cut[axis]) * own_length
            mine &= (own >= 0) & (own < own_length)
        here = here * own_length + own
    return jnp.where(mine, here, math.prod(rectangle[: piece.row_axes]))


def _sum_of_one(part: Array, over: tuple[str, ...]) -> Array:
    """Sum over devices, bit for bit, where only one has each element and all others have 0.

    The bits are summed as integers, since −0 + 0 would lose its sign and a NaN its payload.
    """
    bits = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[part.dtype.itemsize]
    if part.dtype == jnp.bool_:
        return _sum(part.astype(jnp.uint32), over).astype(jnp.bool_)
    words = jax.lax.bitcast_convert_type(part, bits)
    wide = words.astype(np.promote_types(bits, np.uint32))
    return jax.lax.bitcast_convert_type(_sum(wide, over).astype(bits), part.dtype)


def _sum(part: Array, over: tuple[str, ...]) -> Array:
    total: Array = jax.lax.psum(part, over)  # type: ignore[no-untyped-call]  # untyped in JAX
    return total


Leaves = tuple[Array, ...]
Stored = tuple[Leaves, Array | None]
"""Leaves that were written, and this device's share of what rounding took away, if they round."""


@dataclass(frozen=True, slots=True)
class FragmentShape:
    """All that a compiled boundary function depends on, besides the leaves' own shapes.

    The pieces are in the order of the flat value, which is cut over all axes of the mesh; without a
    mesh there are none.
    """

    pieces: tuple[PieceShape, ...]
    axes: tuple[str, ...]
    devices: int

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)


def shape_of(
    layout: Layout, fragment: Fragment, cuts: Mapping[int, Cut], placement: Placement
) -> FragmentShape:
    indices = {leaf: index for index, leaf in enumerate(touched(fragment))}
    pieces = [
        piece_shape(
            indices[piece.leaf],
            layout.leaves[piece.leaf],
            piece.row_stop - piece.row_start,
            cuts[piece.leaf],
            additive=piece.role is not Role.STATE,
        )
        for piece in fragment.pieces
    ]
    return FragmentShape(tuple(pieces), placement.axes, len(placement.devices))


def touched(fragment: Fragment) -> list[int]:
    """Return the indices of the leaves that a fragment touches, ascending."""
    return sorted({piece.leaf for piece in fragment.pieces})


def rounding(layout: Layout, fragment: Fragment) -> bool:
    """Whether a leaf that a fragment touches rounds what is written into it."""
    return any(rounds(np.dtype(layout.leaves[leaf].dtype)) for leaf in touched(fragment))


def first_rows(fragment: Fragment) -> NDArray[np.int32]:
    return np.array([piece.row_start for piece in fragment.pieces], np.int32)


FLOAT32_MANTISSA = 23
LOST = jnp.bfloat16
"""Dtype of what rounding took away: 8 bits below those of a leaf, or 2 bytes for each element."""


def gather(
    shape: FragmentShape,
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
    lost: Float[Array, " n"] | None,
) -> Float[Array, " n"]:
    """Gather this device's share of a fragment's flat value in float32. Nothing is donated."""
    share = _share(shape, flattened(shape, leaves, starts))
    return share if lost is None else share + lost.astype(jnp.float32)


def difference(
    shape: FragmentShape,
    dtype: str,
    base: Float[Array, " n"],
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
    lost: Float[Array, " n"] | None,
) -> Float[Array, " n"]:
    """Compute base − local in float32 and cast it to `dtype`. Nothing is donated."""
    return (base - gather(shape, leaves, starts, lost)).astype(dtype)


def overwrite(
    shape: FragmentShape,
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
    _lost: Float[Array, " n"] | None,
    value: Float[Array, " n"],
) -> Stored:
    """Return the leaves with local := value, whatever they held. The leaves are donated."""
    return _stored(shape, leaves, starts, assembled(shape, value))


def mix(
    shape: FragmentShape,
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
    lost: Float[Array, " n"] | None,
    value: Float[Array, " n"],
    share: Float[Array, ""],
) -> Stored:
    """Return the leaves with local := share · local + (1 − share) · value, computed in float32.

    The leaves are donated. Running averages (a task's state, merged moments) are set to the value.
    """
    held, taken = _held(shape, leaves, starts, lost), assembled(shape, value)
    mixture = share * held + (1 - share) * taken
    return _stored(shape, leaves, starts, _additive(shape, mixture, taken))


def shift(
    shape: FragmentShape,
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
    lost: Float[Array, " n"] | None,
    value: Float[Array, " n"],
    base: Float[Array, " n"],
    sent: Float[Array, " n"],
) -> Stored:
    """Return the leaves with local := local + (value − (base − sent)), computed in float32.

    The leaves are donated. `sent` is base − local of the contribution in the value. Running
    averages (a task's state, merged moments) are no sums of steps: the sum may overshoot, and a
    variance become negative. So they move no further than to the value, and not away from it.
    """
    held, taken = _held(shape, leaves, starts, lost), assembled(shape, value)
    moved = held + assembled(shape, value - (base - sent))
    between = jnp.clip(moved, jnp.minimum(held, taken), jnp.maximum(held, taken))
    return _stored(shape, leaves, starts, _additive(shape, moved, between))


def _additive(shape: FragmentShape, moved: Array, averages: Array) -> Array:
    """Return the moved elements of parameters, and the other's elements of running averages."""
    if all(piece.additive for piece in shape.pieces):
        return moved
    ends = np.cumsum([piece.size for piece in shape.pieces])
    parts = [
        (moved if piece.additive else averages)[end - piece.size : end]
        for piece, end in zip(shape.pieces, ends.tolist(), strict=True)
    ]
    return jnp.concatenate(parts)


def first_number(axes: tuple[str, ...], leaf: Array) -> Float[Array, ""]:
    """Copy one number of this device's part of a leaf. Nothing is donated.

    The first device of a mesh of these axes gives its number to all, as several processes must read
    the same; without axes each device copies its own.
    """
    number = leaf.reshape(-1)[0].astype(jnp.float32)
    if not axes:
        return number
    return _sum(jnp.where(jax.lax.axis_index(axes) == 0, number, 0), axes)


def all_finite(axes: tuple[str, ...], tree: PyTree) -> Bool[Array, ""]:
    """Whether every floating element of a tree is finite on all devices of a mesh of these axes."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    finite = jnp.all(jnp.stack([jnp.isfinite(x).all() for x in leaves]))
    if not axes:
        return finite
    everywhere: Array = jax.lax.pmin(finite.astype(jnp.int32), axes)  # type: ignore[no-untyped-call]  # untyped in JAX
    return everywhere > 0


def flattened(
    shape: FragmentShape, leaves: Sequence[Array], starts: Int[Array, " pieces"]
) -> Array:
    """Gather a fragment's whole flat value on every device."""
    pairs = zip(shape.pieces, starts, strict=True)
    parts = [read_rows(piece, leaves[piece.leaf], start) for piece, start in pairs]
    return jnp.concatenate([part.astype(jnp.float32) for part in parts])


def _share(shape: FragmentShape, flat: Array) -> Array:
    """Cut out this device's share of a flat value, padded so that all shares have one length."""
    if shape.devices == 1:
        return flat
    length = -(-flat.size // shape.devices)
    padded = jnp.pad(flat, (0, length * shape.devices - flat.size))
    start = jax.lax.axis_index(shape.axes) * length
    return jax.lax.dynamic_slice_in_dim(padded, start, length)


def assembled(shape: FragmentShape, share: Array) -> Array:
    """Gather the flat value of which each device has a share."""
    if shape.devices == 1:
        return share
    whole: Array = jax.lax.all_gather(share, shape.axes, tiled=True)
    return whole[: shape.size]


def written(
    shape: FragmentShape, leaves: Sequence[Array], starts: Int[Array, " pieces"], flat: Array
) -> Leaves:
    filled = list(leaves)
    offset = 0
    for piece, start in zip(shape.pieces, starts, strict=True):
        leaf = filled[piece.leaf]
        part = flat[offset : offset + piece.size].astype(leaf.dtype)
        filled[piece.leaf] = write_rows(piece, leaf, start, part)
        offset += piece.size
    return tuple(filled)


def rounds(dtype: np.dtype[np.generic]) -> bool:
    """Whether a leaf of this dtype rounds a float32 that is written into it."""
    return jnp.issubdtype(dtype, jnp.floating) and _bits(dtype)[1] < FLOAT32_MANTISSA


def _bits(dtype: np.dtype[np.generic]) -> tuple[int, int]:
    """Return the bits of a floating dtype's exponent and mantissa."""
    info = jnp.finfo(dtype)  # type: ignore[no-untyped-call]  # untyped in JAX
    return int(info.nexp), int(info.nmant)


def _held(
    shape: FragmentShape,
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
    lost: Array | None,
) -> Array:
    """Gather a fragment's whole local value on every device, with what rounding took away."""
    flat = flattened(shape, leaves, starts)
    return flat if lost is None else flat + assembled(shape, lost).astype(jnp.float32)


def _stored(
    shape: FragmentShape, leaves: Sequence[Array], starts: Int[Array, " pieces"], flat: Array
) -> Stored:
    """Write a flat value into the leaves, and return them with what rounding took away."""
    stored = written(shape, leaves, starts, flat)
    if not any(rounds(leaves[piece.leaf].dtype) for piece in shape.pieces):
        return stored, None
    ends = np.cumsum([piece.size for piece in shape.pieces])
    parts = []
    for piece, end in zip(shape.pieces, ends.tolist(), strict=True):
        part, dtype = flat[end - piece.size : end], leaves[piece.leaf].dtype
        if rounds(dtype):  # XLA may drop a cast there and back, but not this
            kept = jax.lax.reduce_precision(part, *_bits(dtype))
            parts.append(part - kept)
        else:
            parts.append(jnp.zeros_like(part))
    return stored, _share(shape, jnp.concatenate(parts)).astype(LOST)
