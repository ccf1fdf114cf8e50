"""A file that tells what a model's trained tensors are, so that a hub can plan a run without them.

`islands layout` writes it, and `--layout FILE` has a hub read it. It is JSON: a list of leaves,
each with its path, shape, dtype, role and stack; and, where the syncer is to lease the records of
the loops' data, how many there are, and in how many shards.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from islands.errors import SettingsError, unusable
from islands.layout.leaves import Leaf

SHARDS = 64
"""Shards that a hub leases out, unless the file says otherwise."""


class LayoutFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of the file.

    Attributes:
        leaves: the trained leaves.
        records: number of records of the loops' data; 0: each loop reads data of its own.
        shards: number of shards in which they are leased.
    """

    leaves: tuple[Leaf, ...]
    records: int = 0
    shards: int = SHARDS

    def __post_init__(self) -> None:
        """Refuse shards without a record.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        if self.records < 0:
            raise SettingsError(f"records is {self.records}; it must be at least 0")
        if self.shards < 1 or (self.records and self.shards > self.records):
            most = f"1 to {self.records}, the number of records" if self.records else "at least 1"
            raise SettingsError(f"shards is {self.shards}; it must be {most}")


def write_leaves(
    path: Path, leaves: Sequence[Leaf], *, records: int = 0, shards: int = SHARDS
) -> None:
    """Write the leaves of a model, and how its data is leased.

    Raises:
        SettingsError: there are shards without a record.
        UserError: the file cannot be written.
    """
    told = LayoutFile(tuple(leaves), records, shards)
    text = msgspec.json.format(msgspec.json.encode(told), indent=1)
    try:
        path.write_bytes(text + b"\n")
    except OSError as error:
        raise unusable(f"the layout {path} cannot be written", error) from error


def read_layout(path: Path) -> LayoutFile:
    """Read the leaves of a model, and how its data is leased.

    Raises:
        UserError: the file cannot be read.
        SettingsError: the file is no layout.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise unusable(f"the layout {path} cannot be read", error) from error
    try:
        return msgspec.json.decode(text, type=LayoutFile)
    except msgspec.MsgspecError as error:
        raise SettingsError(
            f"{path} is no layout ({error}); `islands layout MODULE:PARAMS {path}` writes one"
        ) from error
