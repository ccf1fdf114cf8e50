"""The inner optimizer's state as pieces of bytes, to send to a peer that lost its own.

The bytes of all leaves follow one another in the order of the optimizer's tree. A leaf that fits
into a piece is never cut; a larger one is cut between rows. The pieces follow from paths, dtypes
and shapes alone, so two learners whose schemas are equal agree on them, whatever devices they
have.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from numpy.typing import NDArray

from islands.errors import InvariantError
from islands.training.task import path_of


@dataclass(frozen=True, slots=True)
class MomentLeaf:
    """One array of the optimizer's state; a random key counts as the words it is made of."""

    path: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Number of bytes of the whole leaf."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Part:
    """A leaf or a range of its rows."""

    leaf: int
    leaf_rows: int
    row_start: int
    rows: int
    size_bytes: int

    @property
    def whole(self) -> bool:
        """Whether the part is a whole leaf."""
        return self.rows == self.leaf_rows


@dataclass(frozen=True, slots=True)
class MomentPlan:
    """The leaves, the pieces they form, and a digest of the leaves (`""` if there are none)."""

    leaves: tuple[MomentLeaf, ...]
    pieces: tuple[tuple[Part, ...], ...]
    schema: str


@dataclass(frozen=True, slots=True)
class MomentSnapshot:
    """The parts of a piece in buffers of their own, on their way to the host."""

    arrays: tuple[Array, ...]

    def buffer(self) -> memoryview:
        """Wait for the bytes and return them; they stay valid as long as the view is held."""
        parts = [np.asarray(each).reshape(-1).view(np.uint8) for each in self.arrays]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return whole.data.toreadonly()

    def finite(self) -> bool:
        """Wait for the parts, and return whether all their floating numbers are finite."""
        floating = [x for x in self.arrays if jnp.issubdtype(x.dtype, jnp.floating)]
        return all(bool(np.isfinite(np.asarray(x)).all()) for x in floating)

    def ready(self) -> bool:
        """Whether the device has finished all parts."""
        return all(bool(x.is_ready()) for x in self.arrays)  # type: ignore[attr-defined]


def plan_moments(state: PyTree, most_bytes: int) -> MomentPlan:
    """Plan how a state is cut into pieces.

    Args:
        state: Arrays or their shapes, with random keys as words (`words_of`).
        most_bytes: Largest size of a piece; a single element is never cut, however large.
    """
    flat = jax.tree_util.tree_leaves_with_path(state)
    leaves = [MomentLeaf(path_of(keys), np.dtype(x.dtype), tuple(x.shape)) for keys, x in flat]
    return plan_leaves(leaves, most_bytes)


def plan_leaves(leaves: Sequence[MomentLeaf], most_bytes: int) -> MomentPlan:
    """Plan how leaves are cut into pieces, in their order; see `plan_moments`."""
    pieces: list[list[Part]] = []
    room = 0
    for part in (
        part for index, leaf in enumerate(leaves) for part in _cut(leaf, index, most_bytes)
    ):
        if part.size_bytes > room:
            pieces.append([])
            room = max(most_bytes, part.size_bytes)
        pieces[-1].append(part)
        room -= part.size_bytes
    lines = "\n".join(f"{leaf.path} {leaf.dtype} {leaf.shape}" for leaf in leaves)
    schema = hashlib.blake2b(lines.encode(), digest_size=16).hexdigest() if pieces else ""
    return MomentPlan(tuple(leaves), tuple(tuple(piece) for piece in pieces), schema)


def joined(plan: MomentPlan, pieces: Sequence[memoryview]) -> list[NDArray[np.generic]]:
    """Copy the leaves out of all the pieces.

    Raises:
        InvariantError: The number or the lengths of the pieces are not those of the plan.
    """
    wanted = [sum(part.size_bytes for part in piece) for piece in plan.pieces]
    if (given := [piece.nbytes for piece in pieces]) != wanted:
        raise InvariantError(f"moments are pieces of {wanted} bytes, not of {given}")
    leaves = [np.empty(leaf.size_bytes, np.uint8) for leaf in plan.leaves]
    filled = [0] * len(leaves)
    for piece, buffer in zip(plan.pieces, pieces, strict=True):
        source, start = np.frombuffer(buffer, np.uint8), 0
        for part in piece:
            begin, end = filled[part.leaf], filled[part.leaf] + part.size_bytes
            leaves[part.leaf][begin:end] = source[start : start + part.size_bytes]
            filled[part.leaf], start = end, start + part.size_bytes
    return [
        x.view(leaf.dtype).reshape(leaf.shape) for x, leaf in zip(leaves, plan.leaves, strict=True)
    ]


def words_of(state: PyTree) -> PyTree:
    """Replace each random key of a state by the words it is made of; works under a trace, too."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, state)


def is_key(x: Array) -> bool:
    """Whether an array holds random keys, which have no bytes of their own."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _cut(leaf: MomentLeaf, index: int, most_bytes: int) -> list[Part]:
    """Cut a leaf along as few leading axes as will do; a leaf that fits is a single part."""
    if not leaf.size_bytes:
        return []
    axes = next(
        n
        for n in range(len(leaf.shape) + 1)
        if math.prod(leaf.shape[n:]) * leaf.dtype.itemsize <= most_bytes or n == len(leaf.shape)
    )
    rows = math.prod(leaf.shape[:axes])
    row_bytes = leaf.size_bytes // rows
    each = max(1, most_bytes // row_bytes)
    cuts = [*range(0, rows, each), rows]
    return [Part(index, rows, a, b - a, (b - a) * row_bytes) for a, b in pairwise(cuts)]
