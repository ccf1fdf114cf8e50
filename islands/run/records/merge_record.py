"""The record of a run's merges: everything that a merge was computed from, and what it made.

Each start of the syncer writes a file of its own, `contributions/0001.record` and so on: a magic,
then frames. A frame is the length of its header, the header as JSON, and the header's arrays one
after the other, float32 in the byte order of x86. The first frame is `Began`; then come a `Held`
for each fragment that the start begins with, and a `Merged` for each merge. A frame that did not
find room while the disk was slow is missing whole, and the last one may be cut off.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.files.growing_files import RotatingFile, Spool, nobody
from islands.layout.leaves import VALUE_BYTES, Layout, Unit
from islands.protocol.identities import Version
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge
from messaging.codec.tensors import as_buffer, digest

FOLDER = "contributions"
SUFFIX = ".record"
MAGIC = b"ISLC0001"
LENGTH = struct.Struct("<Q")
UNLIMITED = 2**62
KEPT_BYTES_MIN = 2**28
KEPT_MODELS = 4
"""So many models' bytes may wait for a slow disk, or `KEPT_BYTES_MIN` if that is more."""

Floats = NDArray[np.float32]


class Began(msgspec.Struct, tag="began"):
    """A start of the syncer.

    Attributes:
        settings: the run's settings, as they were for this start.
        units: the merge units of each fragment.
        optimizer: name of the class of the outer optimizer.
    """

    settings: RunSettings
    units: tuple[tuple[Unit, ...], ...]
    optimizer: str


class Held(msgspec.Struct, tag="held"):
    """A fragment that a start begins with: version 0, or what was recovered from the journal.

    Attributes:
        arrays: names of the arrays: `value`, and the outer optimizer's state.
        sizes: number of elements of each array.
    """

    fragment: int
    version: Version
    digest: str
    arrays: tuple[str, ...]
    sizes: tuple[int, ...]


class Part(msgspec.Struct):
    """A contribution of a merge.

    Attributes:
        scale: factor by which its norm was clipped; 1 if it was not.
    """

    name: str
    base: Version
    steps: int
    tokens: int
    scale: float


class Merged(msgspec.Struct, tag="merged"):
    """A merge: its arrays are the contributions as they were sent, then the published value.

    Attributes:
        before: the version that the outer step was taken from.
        digest: that of the published value.
        sizes: number of elements of each array.
    """

    fragment: int
    before: Version
    version: Version
    digest: str
    parts: tuple[Part, ...]
    sizes: tuple[int, ...]


Header = Began | Held | Merged


class ContributionRecorder:
    """Writes the record of one start of the syncer, on a thread of its own.

    Nobody waits for it: arrays are handed over without a copy, since they do not change any more,
    and what finds no room is left out and told.

    Args:
        folder: the run's folder.
        settings: the run's settings.
        layout: its layout.
        optimizer: name of the class of the outer optimizer.
        told: given a sentence when the disk fails or frames are lost; also from another thread.
    """

    def __init__(
        self,
        folder: Path,
        settings: RunSettings,
        layout: Layout,
        optimizer: str,
        told: Callable[[str], object] = nobody,
    ) -> None:
        """Choose the file of this start; it is made with the first frame."""
        place = folder / FOLDER
        kept_bytes = max(KEPT_BYTES_MIN, KEPT_MODELS * VALUE_BYTES * layout.size)
        units = tuple(fragment.units for fragment in layout.fragments)
        head = MAGIC + b"".join(_frame(Began(settings, units, optimizer), ()))
        numbers = [int(path.stem) for path in place.glob(f"*{SUFFIX}") if path.stem.isdecimal()]
        path = place / f"{max(numbers, default=0) + 1:04}{SUFFIX}"
        self._spool = Spool(place, told, kept_bytes=kept_bytes)
        self._inlet = self._spool.inlet(RotatingFile(path, UNLIMITED, head))

    def held(
        self, fragment: int, version: Version, arrays: Mapping[str, NDArray[np.generic]]
    ) -> None:
        """Record a fragment that this start begins with."""
        floats = {
            name: np.asarray(array, np.float32)
            for name, array in arrays.items()
            if array.dtype == np.float32
        }
        value = as_buffer(floats["value"])
        sizes = tuple(array.size for array in floats.values())
        header = Held(fragment, version, digest(value), tuple(floats), sizes)
        self._inlet.add(*_frame(header, tuple(floats.values())))

    def merged(
        self, action: BeginMerge, contributions: Sequence[Floats], value: Floats, made: str
    ) -> None:
        """Record a merge.

        Args:
            action: what was merged.
            contributions: the contributions as they were sent, in the action's order.
            value: the published value.
            made: its digest.
        """
        parts = tuple(
            Part(str(part.ticket.name), part.base, part.steps, part.tokens, part.scale)
            for part in action.parts
        )
        arrays = (*contributions, value)
        sizes = tuple(array.size for array in arrays)
        header = Merged(action.fragment, action.current, action.target, made, parts, sizes)
        self._inlet.add(*_frame(header, arrays))

    def close(self) -> None:
        """Write what waits, for some seconds at most; tell what was lost."""
        self._spool.close()


def _frame(header: Header, arrays: Sequence[Floats]) -> tuple[bytes | memoryview, ...]:
    told = msgspec.json.encode(header)
    return (LENGTH.pack(len(told)) + told, *map(as_buffer, arrays))
