"""Leaf, piece, fragment, unit: the types that describe a model's layout (protocol §4).

A *leaf* is one trainable tensor. A *piece* is a leaf or a range of its rows. A *fragment* is a
set of pieces with its own schedule; it travels as one flat buffer, its pieces raveled and
concatenated in order. A *unit* is a range that the merge treats as one tensor. The *layout* is all
of them together with a fingerprint, which the handshake compares.

Rows: an unstacked leaf is cut along its first axis. A leaf stacked over layers or experts is
treated as its stacked entries one after another, and a row is a row of one entry; so a piece is
always one contiguous range of the raveled leaf, and a stack is cut between its entries first.

`islands.layout.fragments` makes layouts. This file imports NumPy and nothing heavier.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from islands.protocol.errors import TaskError
from islands.protocol.settings.choices import MergeRule, Pattern

MIN_RDA_ELEMENTS = 64
VALUE_BYTES = 4
"""Size of an element of a published value, which is float32."""

STATE_PREFIX = "state:"
MOMENTS_PREFIX = "moments:"
"""Prefixes of the paths of leaves that are no parameters, beside those that are."""


class Role(StrEnum):
    """The way in which a merge treats a tensor.

    Embeddings are averaged and matrices are merged by direction; the outer step follows both. The
    state of a loss is averaged, and the average is published as it is.
    """

    EMBEDDING = "embedding"
    MATRIX = "matrix"
    STATE = "state"


def default_role(path: str) -> Role:
    """Return the role of a leaf whose task names none: embedding if its path has `embed` in it."""
    return Role.EMBEDDING if "embed" in path.lower() else Role.MATRIX


@dataclass(frozen=True, slots=True)
class Leaf:
    """One trainable tensor.

    Attributes:
        path: Its keys in the model's tree, joined by `/`.
        dtype: Name of its floating dtype on the learner.
        stack: Number of tensors stacked along its leading axes; 1 when it is not stacked.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    role: Role = Role.MATRIX
    stack: int = 1

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Number of rows it may be cut into; a scalar has one."""
        axis = self._stacked_axes()
        return self.stack * (self.shape[axis] if axis < len(self.shape) else 1)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[self._stacked_axes() + 1 :]

    def _stacked_axes(self) -> int:
        """Count the leading axes that make up the stack."""
        for axes in range(len(self.shape) + 1):
            if math.prod(self.shape[:axes]) == self.stack:
                return axes
        raise TaskError(
            f"{self.path}: a stack of {self.stack} is not made of leading axes {self.shape}"
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of rows of one leaf, and where it lies in its fragment's buffer.

    Attributes:
        leaf: Index of the leaf in `Layout.leaves`.
        shape: Shape of the piece; the leaf's own when it is the whole leaf.
        size: Number of elements.
        entry_rows: Rows of one stacked entry; all rows of the leaf when it is not stacked.
        offset: First element in the fragment's flat buffer.
    """

    path: str
    leaf: int
    row_start: int
    row_stop: int
    shape: tuple[int, ...]
    size: int
    role: Role
    entry_rows: int
    offset: int = 0

    @property
    def start(self) -> int:
        """First element in the raveled leaf."""
        return self.row_start * self.row_size

    @property
    def stop(self) -> int:
        """Element after the last in the raveled leaf."""
        return self.row_stop * self.row_size

    @property
    def row_size(self) -> int:
        return self.size // (self.row_stop - self.row_start)


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of a fragment's buffer that the merge treats as one tensor.

    If it is not `stepped`, no outer optimizer acts on it: the merged value is published as it is.
    """

    offset: int
    size: int
    rule: MergeRule
    stepped: bool = True


@dataclass(frozen=True, slots=True)
class Fragment:
    """Pieces that share one schedule and one flat buffer of `size` elements."""

    index: int
    pieces: tuple[Piece, ...]
    size: int

    def units(self, rule: MergeRule) -> tuple[Unit, ...]:
        """Return the merge units: one per piece, a piece of a stack cut between its entries first.

        Matrices are merged by the run's rule, unless they are small; all else is averaged.
        """
        return tuple(unit for piece in self.pieces for unit in _units(piece, rule))

    @property
    def averages(self) -> tuple[tuple[int, int], ...]:
        """The ranges, from and to, that hold running averages rather than parameters."""
        held = [piece for piece in self.pieces if piece.role is Role.STATE]
        return tuple((piece.offset, piece.offset + piece.size) for piece in held)


@dataclass(frozen=True, slots=True)
class Layout:
    """All leaves, the fragments they form, and a fingerprint of both.

    Attributes:
        leaves: The trainable leaves, in the order of the model's tree.
        fragments: None is empty.
        labels: Further facts that all members must share (task, tokenizer, corpus digest), sorted.
        fingerprint: blake2b-128 of `describe()`.
    """

    leaves: tuple[Leaf, ...]
    fragments: tuple[Fragment, ...]
    pattern: Pattern
    labels: tuple[tuple[str, str], ...]
    fingerprint: str

    @property
    def size(self) -> int:
        """Number of elements: trained ones, and those of the task's state that are averaged."""
        return sum(fragment.size for fragment in self.fragments)

    @property
    def summary(self) -> str:
        """The size of the model, as a text for people."""
        state = [leaf for leaf in self.leaves if leaf.role is Role.STATE]
        averaged = sum(leaf.size for leaf in state)
        text = f"{self.size - averaged:,} parameters in {len(self.leaves) - len(state)} tensors"
        return f"{text} (and {averaged:,} numbers of its state)" if state else text

    def describe(self) -> tuple[str, ...]:
        """Describe the layout in readable lines; layouts with equal lines are equal."""
        lines = [f"{name} = {value}" for name, value in self.labels]
        for leaf in self.leaves:
            stack = f" stack of {leaf.stack}" if leaf.stack > 1 else ""
            shape = ",".join(map(str, leaf.shape))
            lines.append(f"leaf {leaf.path}: {leaf.dtype}[{shape}] {leaf.role}{stack}")
        lines.append(f"pattern = {self.pattern}, {len(self.fragments)} fragments")
        for fragment in self.fragments:
            ranges = (f"{p.path}[{p.row_start}:{p.row_stop}]" for p in fragment.pieces)
            lines.append(f"fragment {fragment.index}: {' '.join(ranges)}")
        return tuple(lines)

    def first_difference(self, other: "Layout") -> str | None:
        """Return a text with the first line in which two layouts differ; None when they agree."""
        for mine, theirs in zip(self.describe(), other.describe(), strict=False):
            if mine != theirs:  # no description begins another: it states its number of fragments
                return f"here {mine}; there {theirs}"
        return None

    def assemble(self, values: Sequence[NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        """Build the leaves by path from one flat float32 value per fragment."""
        return {leaf.path: array for leaf, array in self.assembled(values)}

    def assembled(
        self, values: Sequence[NDArray[np.float32]]
    ) -> Iterator[tuple[Leaf, NDArray[np.float32]]]:
        """Build the leaves one after another: one at a time is in memory beside the values."""
        for leaf, parts in zip(self.leaves, self._parts(), strict=True):
            array = np.zeros(leaf.shape, np.float32)
            for index, piece in parts:
                part = values[index][piece.offset : piece.offset + piece.size]
                array.reshape(-1)[piece.start : piece.stop] = part
            yield leaf, array

    def disassemble(self, arrays: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.float32]]:
        """Build one flat float32 value per fragment from the leaves by path."""
        return self.flattened(arrays[leaf.path] for leaf in self.leaves)

    def flattened(self, leaves: Iterable[NDArray[np.generic]]) -> list[NDArray[np.float32]]:
        """Build one flat float32 value per fragment from the leaves, which come in order."""
        values = [np.empty(fragment.size, np.float32) for fragment in self.fragments]
        for array, parts in zip(leaves, self._parts(), strict=True):
            for index, piece in parts:
                part = array.reshape(-1)[piece.start : piece.stop]
                values[index][piece.offset : piece.offset + piece.size] = part
        return values

    def _parts(self) -> list[list[tuple[int, Piece]]]:
        """Return the pieces of each leaf, each with the index of its fragment."""
        parts: list[list[tuple[int, Piece]]] = [[] for _ in self.leaves]
        for index, fragment in enumerate(self.fragments):
            for piece in fragment.pieces:
                parts[piece.leaf].append((index, piece))
        return parts


def layout_of(
    leaves: Sequence[Leaf],
    fragments: Sequence[Fragment],
    pattern: Pattern,
    labels: Mapping[str, str],
) -> Layout:
    """Make a layout of planned fragments, and compute its fingerprint."""
    sorted_labels = tuple(sorted(labels.items()))
    layout = Layout(tuple(leaves), tuple(fragments), pattern, sorted_labels, "")
    digest = hashlib.blake2b("\n".join(layout.describe()).encode(), digest_size=16)
    return replace(layout, fingerprint=digest.hexdigest())


def read(fragment: Fragment, leaves: Sequence[NDArray[np.generic]]) -> NDArray[np.float32]:
    """Copy a fragment's flat float32 value out of the leaves, given in the layout's order."""
    flat = np.empty(fragment.size, np.float32)
    for piece in fragment.pieces:
        part = leaves[piece.leaf].reshape(-1)[piece.start : piece.stop]
        flat[piece.offset : piece.offset + piece.size] = part
    return flat


def write(
    fragment: Fragment, value: NDArray[np.generic], leaves: Sequence[NDArray[np.float32]]
) -> None:
    """Copy a fragment's flat value into the (contiguous) leaves it is made of."""
    for piece in fragment.pieces:
        part = value[piece.offset : piece.offset + piece.size]
        leaves[piece.leaf].reshape(-1)[piece.start : piece.stop] = part


def _units(piece: Piece, rule: MergeRule) -> Iterator[Unit]:
    row_size = piece.row_size
    row = piece.row_start
    while row < piece.row_stop:
        stop = min(piece.row_stop, (row // piece.entry_rows + 1) * piece.entry_rows)
        size = (stop - row) * row_size
        small = piece.role is not Role.MATRIX or size < MIN_RDA_ELEMENTS
        offset = piece.offset + (row - piece.row_start) * row_size
        by = MergeRule.AVERAGE if small else rule
        yield Unit(offset, size, by, stepped=piece.role is not Role.STATE)
        row = stop
