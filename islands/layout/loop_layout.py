"""The trained tensors of a loop of a user's own, as a run's first loop reports them to its hub.

It is JSON: a list of leaves, each with its path, shape, dtype, role and stack; and, where the
syncer is to lease the records of the loops' data, how many there are, and in how many shards.
Whoever sends it, what it claims is bounded before anything is planned by it.
"""

import math

import msgspec

from islands.layout.leaves import Leaf
from islands.protocol.errors import SettingsError, TaskError

SHARDS = 64
"""Shards in which records are leased, unless the loop says otherwise."""

LEAVES_MAX = 1 << 16
"""Most tensors, each entry of a stack counted."""
PATH_MAX = 1024
"""Most characters of a path."""
DIMENSIONS_MAX = 16
SIZE_MAX = 1 << 50
"""Most elements of all tensors together."""


class LoopLayout(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a loop trains, and how its data is leased: so many records in so many shards.

    Without records, each loop reads data of its own.
    """

    leaves: tuple[Leaf, ...]
    records: int = 0
    shards: int = SHARDS

    def __post_init__(self) -> None:
        """Refuse shards without a record."""
        if self.records < 0:
            raise SettingsError(f"records is {self.records}; it must be at least 0")
        if self.shards < 1 or (self.records and self.shards > self.records):
            most = f"1 to {self.records}, the number of records" if self.records else "at least 1"
            raise SettingsError(f"shards is {self.shards}; it must be {most}")


def encode_layout(layout: LoopLayout) -> bytes:
    return msgspec.json.encode(layout)


def decode_layout(text: bytes | memoryview) -> LoopLayout:
    """Decode a layout, and check what it claims."""
    try:
        layout = msgspec.json.decode(text, type=LoopLayout)
    except RecursionError as error:
        raise TaskError("the text is nested too deep") from error
    leaves = layout.leaves
    for leaf in leaves:
        _check(leaf)
    tensors = sum(leaf.stack for leaf in leaves)
    if tensors > LEAVES_MAX:
        raise TaskError(f"there are {tensors} tensors, of {LEAVES_MAX} at most: stack them")
    size = sum(leaf.size for leaf in leaves)
    if size > SIZE_MAX:
        raise TaskError(f"there are {size} parameters, of {SIZE_MAX} at most")
    return layout


def _check(leaf: Leaf) -> None:
    """Refuse a leaf whose claims no model has."""
    path = leaf.path[:PATH_MAX]
    if not 0 < len(leaf.path) <= PATH_MAX or not leaf.path.isprintable():
        raise TaskError(f"a path is {path!r}; it must have 1 to {PATH_MAX} printable characters")
    if len(leaf.shape) > DIMENSIONS_MAX or any(n < 0 for n in leaf.shape):
        raise TaskError(f"{path} has the shape {leaf.shape}, which no array has")
    if not 1 <= leaf.stack <= max(1, math.prod(leaf.shape)):
        raise TaskError(f"{path} is a stack of {leaf.stack}, which its shape {leaf.shape} is not")
