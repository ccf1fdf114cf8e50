"""What a model's trained tensors are, as it is told to a hub, which plans a run without them.

`islands layout` writes a file, and `--layout FILE` has a hub read it; for `--layout first` the
first loop that joins sends the same in a message. It is JSON: a list of leaves, each with its path,
shape, dtype, role and stack. Whoever wrote it, what it claims is bounded before anything is planned
by it.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from islands.errors import SettingsError, TaskError, unusable
from islands.layout.leaves import Leaf

LEAVES_MAX = 1 << 16
"""Most tensors, each entry of a stack counted."""

PATH_MAX = 1024
"""Most characters of a path."""

DIMENSIONS_MAX = 16
SIZE_MAX = 1 << 50
"""Most dimensions of a leaf, and most elements of all together."""


class LayoutFile(msgspec.Struct, frozen=True):
    """The contents of the file."""

    leaves: tuple[Leaf, ...]


def write_leaves(path: Path, leaves: Sequence[Leaf]) -> None:
    """Write the leaves of a model.

    Raises:
        UserError: the file cannot be written.
    """
    text = msgspec.json.format(encode_leaves(leaves), indent=1)
    try:
        path.write_bytes(text + b"\n")
    except OSError as error:
        raise unusable(f"the layout {path} cannot be written", error) from error


def read_leaves(path: Path) -> tuple[Leaf, ...]:
    """Read the leaves of a model.

    Raises:
        UserError: the file cannot be read.
        SettingsError: the file is no layout.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise unusable(f"the layout {path} cannot be read", error) from error
    try:
        return decode_leaves(text)
    except (msgspec.MsgspecError, TaskError) as error:
        raise SettingsError(
            f"{path} is no layout ({error}); `islands layout MODULE:PARAMS {path}` writes one"
        ) from error


def encode_leaves(leaves: Sequence[Leaf]) -> bytes:
    """Encode the leaves of a model as JSON."""
    return msgspec.json.encode(LayoutFile(tuple(leaves)))


def decode_leaves(text: bytes | memoryview) -> tuple[Leaf, ...]:
    """Decode the leaves of a model, and check what they claim.

    Raises:
        MsgspecError: the text is no list of leaves.
        TaskError: there are too many, or one cannot be; names it.
    """
    leaves = msgspec.json.decode(text, type=LayoutFile).leaves
    for leaf in leaves:
        _check(leaf)
    tensors = sum(leaf.stack for leaf in leaves)
    if tensors > LEAVES_MAX:
        raise TaskError(f"there are {tensors} tensors, of {LEAVES_MAX} at most: stack them")
    size = sum(leaf.size for leaf in leaves)
    if size > SIZE_MAX:
        raise TaskError(f"there are {size} parameters, of {SIZE_MAX} at most")
    return leaves


def _check(leaf: Leaf) -> None:
    """Refuse a leaf whose claims no model has.

    Raises:
        TaskError: names it, as far as it has a name.
    """
    path = leaf.path[:PATH_MAX]
    if not 0 < len(leaf.path) <= PATH_MAX or not leaf.path.isprintable():
        raise TaskError(f"a path is {path!r}; it must have 1 to {PATH_MAX} printable characters")
    if len(leaf.shape) > DIMENSIONS_MAX or any(n < 0 for n in leaf.shape):
        raise TaskError(f"{path} has the shape {leaf.shape}, which no array has")
    if not 1 <= leaf.stack <= max(1, math.prod(leaf.shape)):
        raise TaskError(f"{path} is a stack of {leaf.stack}, which its shape {leaf.shape} is not")
