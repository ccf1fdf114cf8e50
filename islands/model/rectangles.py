"""Rows of a leaf of which each device has a rectangle: read whole on every device, written back.

A leaf may lie on a mesh in any way that a `PartitionSpec` can tell: each of its dimensions is cut
evenly over none, one or several axes of the mesh, and over the other axes the leaf is repeated. So
each device has a rectangle of it. The functions here run once on each device, under
`jax.shard_map`, and take this device's rectangle for the leaf; without a mesh it is the whole leaf.

A leaf's leading dimensions count its rows. The parts of a row are gathered along its own dimensions
as they are. Where dimensions that count rows are cut, a range of rows lies on some devices, and
where it begins is known only at run time: each device gives the rows that it has, and 0 for others.
"""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, Sharding
from jaxtyping import Array, Int

from islands.layout.leaves import Leaf

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
        additive: Whether the changes made by steps add up; those of a task's state do not.
    """

    leaf: int
    shape: tuple[int, ...]
    leaf_rows: int
    rows: int
    cut: Cut
    additive: bool = True

    @property
    def size(self) -> int:
        """Number of elements."""
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
    place, mine = jnp.zeros_like(index), jnp.ones_like(index, jnp.bool_)
    for axis in range(piece.row_axes):
        length, own_length = piece.shape[axis], rectangle[axis]
        own = index // math.prod(piece.shape[axis + 1 : piece.row_axes]) % length
        if piece.cut[axis]:
            own -= jax.lax.axis_index(piece.cut[axis]) * own_length
            mine &= (own >= 0) & (own < own_length)
        place = place * own_length + own
    return jnp.where(mine, place, math.prod(rectangle[: piece.row_axes]))


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
