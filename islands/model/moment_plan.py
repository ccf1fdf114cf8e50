"""How the state of an inner optimizer is cut into pieces of bytes, whatever framework holds it.

The bytes of all leaves follow one another in their order. A leaf that fits into a piece is never
cut; a larger one is cut between rows. The pieces follow from paths, dtypes and shapes alone, so two
learners whose schemas are equal agree on them, whatever devices they have.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from islands.protocol.errors import InvariantError


@dataclass(frozen=True, slots=True)
class MomentLeaf:
    """One array of the optimizer's state; a random key counts as the words it is made of."""

    path: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
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
        return self.rows == self.leaf_rows


@dataclass(frozen=True, slots=True)
class MomentPlan:
    """The leaves, the pieces they form, and a digest of the leaves (`""` if there are none)."""

    leaves: tuple[MomentLeaf, ...]
    pieces: tuple[tuple[Part, ...], ...]
    schema: str


def plan_leaves(leaves: Sequence[MomentLeaf], most_bytes: int) -> MomentPlan:
    """Plan how leaves are cut into pieces; a single element is never cut, however large."""
    pieces: list[list[Part]] = []
    room = 0
    for index, leaf in enumerate(leaves):
        for part in _cut(leaf, index, most_bytes):
            if part.size_bytes > room:
                pieces.append([])
                room = max(most_bytes, part.size_bytes)
            pieces[-1].append(part)
            room -= part.size_bytes
    lines = "\n".join(f"{leaf.path} {leaf.dtype} {leaf.shape}" for leaf in leaves)
    schema = hashlib.blake2b(lines.encode(), digest_size=16).hexdigest() if pieces else ""
    return MomentPlan(tuple(leaves), tuple(tuple(piece) for piece in pieces), schema)


def joined(plan: MomentPlan, pieces: Sequence[memoryview]) -> list[NDArray[np.generic]]:
    """Copy the leaves out of all the pieces."""
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
