"""Functions that run on the device between two steps: gather, difference, overwrite, shift.

Each takes the leaves that a fragment touches and the first row of each of its pieces. The rows
are arguments, not constants, so fragments of equal shape share one compiled function: a decoder
of many layers needs a handful. Rows, not elements, are counted, as a leaf may have more than 2³¹
elements and JAX's indices have 32 bits.

On a mesh the functions run once on each device (`Placement.prepared`). A leaf is then the device's
own part of it, and a flat value is the device's even share; never more than the one fragment
travels between devices. On one device a part is the whole, and nothing is added.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree
from numpy.typing import NDArray

from islands.layout.leaves import Fragment, Layout, Role
from islands.layout.mesh import EVERYWHERE, MODEL, Split

Leaves = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class PieceShape:
    """A piece without the row at which it starts.

    Attributes:
        leaf: Index among the leaves that the function is given.
        shape: Shape of the whole leaf.
        leaf_rows: Number of rows of the leaf, each an entry along its leading axes.
        rows: Number of rows of the piece.
        split: How the leaf is cut over the devices.
        additive: Whether the changes made by steps add up; those of a task's state do not.
    """

    leaf: int
    shape: tuple[int, ...]
    leaf_rows: int
    rows: int
    split: Split | None = None
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


@dataclass(frozen=True, slots=True)
class FragmentShape:
    """All that a compiled boundary function depends on, besides the leaves' own shapes."""

    pieces: tuple[PieceShape, ...]
    devices: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return sum(piece.size for piece in self.pieces)


def shape_of(
    layout: Layout,
    fragment: Fragment,
    split: Callable[[tuple[int, ...]], Split | None],
    devices: int,
) -> FragmentShape:
    """Return the shape of a fragment; fragments of equal shape share compiled functions."""
    places = {leaf: place for place, leaf in enumerate(touched(fragment))}
    pieces = []
    for piece in fragment.pieces:
        leaf, rows = layout.leaves[piece.leaf], piece.row_stop - piece.row_start
        place = places[piece.leaf]
        additive = piece.role is not Role.STATE
        pieces.append(PieceShape(place, leaf.shape, leaf.rows, rows, split(leaf.shape), additive))
    return FragmentShape(tuple(pieces), devices)


def touched(fragment: Fragment) -> list[int]:
    """Return the indices of the leaves that a fragment touches, ascending."""
    return sorted({piece.leaf for piece in fragment.pieces})


def first_rows(fragment: Fragment) -> NDArray[np.int32]:
    """Return the first row of each piece."""
    return np.array([piece.row_start for piece in fragment.pieces], np.int32)


def gather(
    shape: FragmentShape, leaves: Sequence[Array], starts: Int[Array, " pieces"]
) -> Float[Array, " n"]:
    """Gather this device's share of a fragment's flat value in float32. Nothing is donated."""
    return _share(shape, flattened(shape, leaves, starts))


def difference(
    shape: FragmentShape,
    dtype: str,
    base: Float[Array, " n"],
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
) -> Float[Array, " n"]:
    """Compute base − local in float32 and cast it to `dtype`. Nothing is donated."""
    return (base - gather(shape, leaves, starts)).astype(dtype)


def overwrite(
    shape: FragmentShape,
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
    value: Float[Array, " n"],
) -> Leaves:
    """Return the leaves with local := value, whatever they held. The leaves are donated."""
    return written(shape, leaves, starts, assembled(shape, value))


def mix(
    shape: FragmentShape,
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
    value: Float[Array, " n"],
    share: Float[Array, ""],
) -> Leaves:
    """Return the leaves with local := share · local + (1 − share) · value, computed in float32.

    The leaves are donated. Running averages (a task's state, merged moments) are set to the value.
    """
    held, taken = flattened(shape, leaves, starts), assembled(shape, value)
    mixture = share * held + (1 - share) * taken
    return written(shape, leaves, starts, _additive(shape, mixture, taken))


def shift(
    shape: FragmentShape,
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
    value: Float[Array, " n"],
    base: Float[Array, " n"],
    sent: Float[Array, " n"] | None = None,
) -> Leaves:
    """Return the leaves with local := local + (value − (base − sent)), computed in float32.

    The leaves are donated. `sent` is base − local of the contribution in the value. Running
    averages (a task's state, merged moments) are no sums of steps: the sum may overshoot, and a
    variance become negative. So they move no further than to the value, and not away from it.
    """
    known = base if sent is None else base - sent
    held, taken = flattened(shape, leaves, starts), assembled(shape, value)
    moved = held + assembled(shape, value - known)
    between = jnp.clip(moved, jnp.minimum(held, taken), jnp.maximum(held, taken))
    return written(shape, leaves, starts, _additive(shape, moved, between))


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


def read_rows(piece: PieceShape, leaf: Array, start: Int[Array, ""]) -> Array:
    """Read rows of a leaf from `start` on, raveled, whole on every device. Nothing is donated."""
    split, axes = piece.split, piece.row_axes
    if split is None:
        rows = leaf.reshape(piece.leaf_rows, -1)
        return jax.lax.dynamic_slice_in_dim(rows, start, piece.rows).reshape(-1)
    if split.axis >= axes:  # every device has a part of each row
        rows = leaf.reshape(piece.leaf_rows, *leaf.shape[axes:])
        part = jax.lax.dynamic_slice_in_dim(rows, start, piece.rows)
        axis = split.axis - axes + 1
        whole: Array = jax.lax.all_gather(part, MODEL, axis=axis, tiled=True)
        return whole.reshape(-1)
    rows = leaf.reshape(piece.leaf_rows // split.parts, -1)
    part = rows.at[_own_rows(piece, split, start)].get(mode="fill", fill_value=0)
    return _sum_of_one(part).reshape(-1)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every floating element of a tree is finite."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.all(jnp.stack([jnp.isfinite(x).all() for x in leaves]))


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
    start = jax.lax.axis_index(EVERYWHERE) * length
    return jax.lax.dynamic_slice_in_dim(padded, start, length)


def assembled(shape: FragmentShape, share: Array) -> Array:
    """Gather the flat value of which each device has a share."""
    if shape.devices == 1:
        return share
    whole: Array = jax.lax.all_gather(share, EVERYWHERE, tiled=True)
    return whole[: shape.size]


def written(
    shape: FragmentShape, leaves: Sequence[Array], starts: Int[Array, " pieces"], flat: Array
) -> Leaves:
    """Return the leaves with a fragment's flat value written into them, in their own dtypes."""
    filled = list(leaves)
    offset = 0
    for piece, start in zip(shape.pieces, starts, strict=True):
        leaf = filled[piece.leaf]
        part = flat[offset : offset + piece.size].astype(leaf.dtype)
        filled[piece.leaf] = _write(piece, leaf, start, part)
        offset += piece.size
    return tuple(filled)


def _write(piece: PieceShape, leaf: Array, start: Int[Array, ""], part: Array) -> Array:
    split, axes = piece.split, piece.row_axes
    if split is None:
        rows = leaf.reshape(piece.leaf_rows, -1)
        part = part.reshape(piece.rows, -1)
        rows = jax.lax.dynamic_update_slice_in_dim(rows, part, start, axis=0)
    elif split.axis >= axes:
        rows = leaf.reshape(piece.leaf_rows, *leaf.shape[axes:])
        part = part.reshape(piece.rows, *piece.shape[axes:])
        length, axis = leaf.shape[split.axis], split.axis - axes + 1
        first = jax.lax.axis_index(MODEL) * length
        part = jax.lax.dynamic_slice_in_dim(part, first, length, axis)
        rows = jax.lax.dynamic_update_slice_in_dim(rows, part, start, axis=0)
    else:
        rows = leaf.reshape(piece.leaf_rows // split.parts, -1)
        part = part.reshape(piece.rows, -1)
        rows = rows.at[_own_rows(piece, split, start)].set(part, mode="drop")
    return rows.reshape(leaf.shape)


def _own_rows(piece: PieceShape, split: Split, start: Int[Array, ""]) -> Int[Array, " rows"]:
    """Index each row of a piece among this device's rows; past their end if another has it."""
    lengths = piece.shape[: piece.row_axes]
    below = math.prod(lengths[split.axis + 1 :])
    length = lengths[split.axis]
    own_length = length // split.parts
    index = start + jnp.arange(piece.rows, dtype=jnp.int32)
    along = index // below % length
    own = along - jax.lax.axis_index(MODEL) * own_length
    place = (index // (below * length) * own_length + own) * below + index % below
    mine = (own >= 0) & (own < own_length)
    return jnp.where(mine, place, piece.leaf_rows // split.parts)


def _sum_of_one(part: Array) -> Array:
    """Sum over devices, bit for bit, where only one has each element and all others have 0.

    The bits are summed as integers, since −0 + 0 would lose its sign and a NaN its payload.
    """
    bits = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[part.dtype.itemsize]
    if part.dtype == jnp.bool_:
        return _sum(part.astype(jnp.uint32)).astype(jnp.bool_)
    words = jax.lax.bitcast_convert_type(part, bits)
    wide = words.astype(np.promote_types(bits, np.uint32))
    return jax.lax.bitcast_convert_type(_sum(wide).astype(bits), part.dtype)


def _sum(part: Array) -> Array:
    total: Array = jax.lax.psum(part, MODEL)  # type: ignore[no-untyped-call]  # untyped in JAX
    return total
