"""Read the record of a run's merges, frame by frame."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import VALUE_BYTES
from islands.protocol.errors import UserError, unusable
from islands.run.records.merge_record import FOLDER, LENGTH, MAGIC, SUFFIX, Began, Header

Floats = NDArray[np.float32]

HEADER_BYTES_MAX = 2**28


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: its header, and its arrays in the header's order."""

    header: Header
    arrays: tuple[Floats, ...]


def record_files(folder: Path) -> list[Path]:
    """Return the files of a run's record, in the order of the syncer's starts.

    Raises:
        UserError: the run has recorded nothing.
    """
    found = sorted((folder / FOLDER).glob(f"*{SUFFIX}"))
    if not found:
        raise UserError(
            f"{folder} holds no recorded contributions; a run records them if it is started with "
            "--run.record_contributions"
        )
    return found


def frames(path: Path) -> Iterator[Frame]:
    """Read a file as far as it is now; a last frame that is cut off is left out.

    The run may go on, and a reader of all that comes might never end.

    Raises:
        UserError: the file cannot be read, or is no record of this version.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise UserError(
                    f"{path} is no record of contributions that this version of islands can read"
                )
            end = path.stat().st_size
            while file.tell() < end and (frame := _next(file, path)) is not None:
                yield frame
    except OSError as error:
        raise unusable(f"{path} cannot be read", error) from error


def _next(file: IO[bytes], path: Path) -> Frame | None:
    length = file.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(length)
    told = file.read(min(size, HEADER_BYTES_MAX))
    if len(told) < min(size, HEADER_BYTES_MAX):
        return None
    try:
        header: Header = msgspec.json.decode(told, type=Header)
    except (msgspec.MsgspecError, UserError) as error:
        raise UserError(f"{path} is damaged at byte {file.tell() - len(told)}: {error}") from error
    arrays: list[Floats] = []
    for elements in () if isinstance(header, Began) else header.sizes:
        data = file.read(VALUE_BYTES * elements)
        if len(data) < VALUE_BYTES * elements:
            return None
        arrays.append(np.frombuffer(data, "<f4"))
    return Frame(header, tuple(arrays))
