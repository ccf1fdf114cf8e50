"""Functions that run on the device between two steps: gather, difference, overwrite, shift.

Each takes the leaves that a fragment touches and the first row of each of its pieces. The rows
are arguments, not constants, so fragments of equal shape share one compiled function: a decoder
of many layers needs a handful. Rows, not elements, are counted, as a leaf may have more than 2³¹
elements and JAX's indices have 32 bits.

On a mesh the functions run once on each device (`Placement.prepared`). A leaf is then the device's
own rectangle of it (`rectangles.py`), and a flat value is the device's even share; never more than
the one fragment travels between devices. On one device both are the whole, and nothing is added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree
from numpy.typing import NDArray

from islands.layout.leaves import Fragment, Layout, Role
from islands.model.placement import Placement
from islands.model.rectangles import Cut, PieceShape, piece_shape, read_rows, write_rows

Leaves = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class FragmentShape:
    """All that a compiled boundary function depends on, besides the leaves' own shapes.

    Attributes:
        pieces: The pieces, in the order of the flat value.
        axes: All axes of the mesh, over which the flat value is cut; none without a mesh.
        devices: Number of devices.
    """

    pieces: tuple[PieceShape, ...]
    axes: tuple[str, ...]
    devices: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return sum(piece.size for piece in self.pieces)


def shape_of(
    layout: Layout, fragment: Fragment, cuts: Mapping[int, Cut], place: Placement
) -> FragmentShape:
    """Return the shape of a fragment; fragments of equal shape share compiled functions.

    Args:
        layout: The layout of all leaves.
        fragment: One of its fragments.
        cuts: How each leaf that the fragment touches is cut, by its index in the layout.
        place: The devices on which the leaves are.
    """
    places = {leaf: place for place, leaf in enumerate(touched(fragment))}
    pieces = [
        piece_shape(
            places[piece.leaf],
            layout.leaves[piece.leaf],
            piece.row_stop - piece.row_start,
            cuts[piece.leaf],
            additive=piece.role is not Role.STATE,
        )
        for piece in fragment.pieces
    ]
    return FragmentShape(tuple(pieces), place.axes, len(place.devices))


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
    sent: Float[Array, " n"],
) -> Leaves:
    """Return the leaves with local := local + (value − (base − sent)), computed in float32.

    The leaves are donated. `sent` is base − local of the contribution in the value. Running
    averages (a task's state, merged moments) are no sums of steps: the sum may overshoot, and a
    variance become negative. So they move no further than to the value, and not away from it.
    """
    held, taken = flattened(shape, leaves, starts), assembled(shape, value)
    moved = held + assembled(shape, value - (base - sent))
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


def first_number(axes: tuple[str, ...], leaf: Array) -> Float[Array, ""]:
    """Copy one number of a leaf. Nothing is donated.

    Args:
        axes: The axes of a mesh whose first device gives its number to all, as several processes
            must read the same; none: each device copies a number of its own part.
        leaf: This device's part of the leaf.
    """
    number = leaf.reshape(-1)[0].astype(jnp.float32)
    if not axes:
        return number
    first = jnp.where(jax.lax.axis_index(axes) == 0, number, 0)
    given: Array = jax.lax.psum(first, axes)  # type: ignore[no-untyped-call]  # untyped in JAX
    return given


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
    """Return the leaves with a fragment's flat value written into them, in their own dtypes."""
    filled = list(leaves)
    offset = 0
    for piece, start in zip(shape.pieces, starts, strict=True):
        leaf = filled[piece.leaf]
        part = flat[offset : offset + piece.size].astype(leaf.dtype)
        filled[piece.leaf] = write_rows(piece, leaf, start, part)
        offset += piece.size
    return tuple(filled)
