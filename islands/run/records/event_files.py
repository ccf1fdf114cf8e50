"""Rotated TensorBoard event files of a run, within a limit of size.

TensorBoard reads all files of a folder in the order of their names; a full file is closed, the next
one begun, and the oldest removed. Importing this module takes a while, so it is imported late.

tensorboardX makes the messages, but its own writer is not used: a disk error, or a wall clock that
was set back, silently ends its thread, and the caller then blocks for ever on its queue of ten.
"""

import contextlib
import re
import socket
import struct
from pathlib import Path
from typing import IO

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from islands.files.rotation import LIMIT_BYTES, write_whole
from islands.files.spool import Spool
from messaging.clock import WallClock

STEP_MAX = 2**63 - 1
"""The largest step that an event can hold."""
NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class EventFiles:
    """Writes the curves of a run.

    Args:
        folder: where the files are kept.
        spool: writes them on its own thread.
        limit_bytes: size at which a file is rotated, and the most that earlier files may take.
    """

    def __init__(self, folder: Path, spool: Spool, limit_bytes: int = LIMIT_BYTES) -> None:
        """Nothing is written before the first point."""
        self._inlet = spool.inlet(_EventFile(folder, limit_bytes))
        self._wall = WallClock()

    def add(self, tag: str, value: float, step: int) -> None:
        """Add a point of a curve."""
        self.add_summary(Summary(value=[Summary.Value(tag=tag, simple_value=value)]), step)

    def add_summary(self, summary: Summary, step: int) -> None:
        """Add whatever TensorBoard shows of a step."""
        event = Event(wall_time=self._wall.now_s(), step=min(step, STEP_MAX), summary=summary)
        self._inlet.add(framed(event.SerializeToString()))


class _EventFile:
    """The file that grows now; a start makes its first file with its first points."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._size = 0
        self._file: IO[bytes] | None = None

    @property
    def room_bytes(self) -> int:
        return self._limit_bytes - self._size

    def write(self, data: bytes) -> None:
        if self._file is None or self._size >= self._limit_bytes:
            self._begin()
        assert self._file is not None, "just opened"
        write_whole(self._file, data, self._size)
        self._size += len(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        """Begin a new file, whose name sorts after all others, whatever the wall clock says."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = self._drop_oldest()
        numbers = [int(match[1]) for path in found if (match := NAME.match(path.name))]
        number = max(int(WallClock().now_s()), *(1 + number for number in numbers), 0)
        path = self._folder / f"events.out.tfevents.{number:010}.{socket.gethostname()}"
        file = path.open("wb", buffering=0)
        version = framed(Event(wall_time=number, file_version="brain.Event:2").SerializeToString())
        try:
            write_whole(file, version, 0)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self.close()
        self._file, self._size = file, len(version)

    def _drop_oldest(self) -> list[Path]:
        """Remove the oldest files until the others are within the limit; return the others."""
        kept = sorted(self._folder.glob("*tfevents*"), key=lambda path: path.name)
        sizes = [path.stat().st_size for path in kept]
        while kept and sum(sizes) > self._limit_bytes:
            kept.pop(0).unlink(missing_ok=True)
            sizes.pop(0)
        return kept


def framed(message: bytes) -> bytes:
    """Return a message as a record of an event file: length and content, each with its checksum."""
    length = struct.pack("<Q", len(message))
    return b"".join(
        (
            *(length, struct.pack("<I", masked_crc32c(length))),
            *(message, struct.pack("<I", masked_crc32c(message))),
        )
    )
