"""A file that tells what a model's trained tensors are, so that a hub can plan a run without them.

`islands layout` writes it, and `--layout FILE` has a hub read it. It is JSON: a list of leaves,
each with its path, shape, dtype, role and stack.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from islands.errors import SettingsError, unusable
from islands.layout.leaves import Leaf


class LayoutFile(msgspec.Struct, frozen=True):
    """The contents of the file."""

    leaves: tuple[Leaf, ...]


def write_leaves(path: Path, leaves: Sequence[Leaf]) -> None:
    """Write the leaves of a model.

    Raises:
        UserError: the file cannot be written.
    """
    text = msgspec.json.format(msgspec.json.encode(LayoutFile(tuple(leaves))), indent=1)
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
        return msgspec.json.decode(text, type=LayoutFile).leaves
    except msgspec.MsgspecError as error:
        raise SettingsError(
            f"{path} is no layout ({error}); `islands layout MODULE:PARAMS {path}` writes one"
        ) from error
