"""What a learner computes on the device between two steps: gather, difference, blend.

Each takes the leaves that a fragment touches and the first row of each of its pieces. The rows
are arguments, not constants, so fragments of equal shape share one compiled function: a decoder
of many layers needs a handful. Rows, not elements, are counted, as a leaf may have more than 2³¹
elements and JAX's indices have 32 bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree
from numpy.typing import NDArray

from islands.layout import Fragment, Layout

Leaves = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class PieceShape:
    """A piece without its place: which of the touched leaves, how many of its rows."""

    leaf: int
    leaf_rows: int
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class FragmentShape:
    """All that a compiled boundary function depends on, beside the leaves' own shapes."""

    pieces: tuple[PieceShape, ...]


def shape_of(layout: Layout, fragment: Fragment) -> FragmentShape:
    """The shape of a fragment; equal shapes share their functions."""
    places = {leaf: place for place, leaf in enumerate(touched(fragment))}
    return FragmentShape(
        tuple(
            PieceShape(
                places[piece.leaf],
                layout.leaves[piece.leaf].rows,
                piece.row_stop - piece.row_start,
                piece.size,
            )
            for piece in fragment.pieces
        )
    )


def touched(fragment: Fragment) -> list[int]:
    """Indices of the leaves a fragment touches, ascending."""
    return sorted({piece.leaf for piece in fragment.pieces})


def first_rows(fragment: Fragment) -> NDArray[np.int32]:
    """The first row of each piece."""
    return np.array([piece.row_start for piece in fragment.pieces], np.int32)


def gather(
    shape: FragmentShape, leaves: Sequence[Array], starts: Int[Array, " pieces"]
) -> Float[Array, " n"]:
    """A fragment's flat value in float32. Nothing is donated."""
    parts = []
    for piece, start in zip(shape.pieces, starts, strict=True):
        rows = leaves[piece.leaf].reshape(piece.leaf_rows, -1)
        part = jax.lax.dynamic_slice_in_dim(rows, start, piece.rows)
        parts.append(part.reshape(-1).astype(jnp.float32))
    return jnp.concatenate(parts)


def difference(
    shape: FragmentShape,
    dtype: str,
    base: Float[Array, " n"],
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
) -> Float[Array, " n"]:
    """Base − local, subtracted in float32 and cast to `dtype`. Nothing is donated."""
    return (base - gather(shape, leaves, starts)).astype(dtype)


def blend(
    shape: FragmentShape,
    leaves: Sequence[Array],
    starts: Int[Array, " pieces"],
    value: Float[Array, " n"],
    keep: Float[Array, ""],
) -> Leaves:
    """The leaves with local := keep · local + (1 − keep) · value, computed in float32.

    The leaves are donated. With `keep` 0 the value is taken as it is, whatever the leaves hold.
    """
    local = gather(shape, leaves, starts)
    mixed = jnp.where(keep == 0, value, keep * local + (1 - keep) * value)
    adopted = list(leaves)
    offset = 0
    for piece, start in zip(shape.pieces, starts, strict=True):
        leaf = adopted[piece.leaf]
        rows = leaf.reshape(piece.leaf_rows, -1)
        part = mixed[offset : offset + piece.size].astype(leaf.dtype)
        part = part.reshape(piece.rows, -1)
        rows = jax.lax.dynamic_update_slice_in_dim(rows, part, start, axis=0)
        adopted[piece.leaf] = rows.reshape(leaf.shape)
        offset += piece.size
    return tuple(adopted)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every floating element of a tree is finite."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.all(jnp.stack([jnp.isfinite(x).all() for x in leaves]))
