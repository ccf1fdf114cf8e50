"""Reads a file of a run's folder as it grows, and in a later start on from where it was.

The file is read as whole lines. How far it was read is kept in a file of the sink's own, which is
written after a sink has taken the lines: a sink that dies is given its last lines again. Of a file
that was turned over meanwhile, the rest is read first.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from islands.files.growing_files import older
from islands.files.plain_files import open_plain, read_plain
from islands.files.whole_files import replace_file
from islands.sinks.sink import Row

AT_ONCE_BYTES = 2**20


class Place(msgspec.Struct):
    """How far a file was read.

    Attributes:
        inode: Tells it from the next file of its name; 0 before anything was read.
        offset: Where the next line begins.
    """

    inode: int = 0
    offset: int = 0


class Follower:
    """Follows a file.

    Args:
        path: the file.
        kept: the file that keeps how far it was read.
    """

    def __init__(self, path: Path, kept: Path) -> None:
        self._path = path
        self._kept = kept
        self._place = Place()
        if kept.exists():
            self._place = msgspec.json.decode(read_plain(kept), type=Place)

    def read(self) -> list[Row]:
        """Return records that came since the last call, some of them at once; none: no more."""
        return list(self._read())

    def keep(self) -> None:
        """Keep how far the file was read."""
        replace_file(self._kept, msgspec.json.encode(self._place))

    def _read(self) -> Iterator[Row]:
        path, place = self._path, self._place
        for each in (older(path), path):
            try:
                file = open_plain(each)
            except FileNotFoundError:  # it may be turned over just now
                continue
            with file:
                inode = os.fstat(file.fileno()).st_ino
                if each != path and place.inode == _inode_of(path):
                    continue  # it was read before it was turned over
                if place.inode != inode:
                    place.inode, place.offset = inode, 0
                file.seek(place.offset)
                text = file.read(AT_ONCE_BYTES)
                if b"\n" not in text:
                    text += file.readline()  # a line that is longer
            whole = text[: text.rfind(b"\n") + 1]
            place.offset += len(whole)
            yield from _parsed(whole)
            if whole:
                return


def _parsed(lines: bytes) -> Iterator[Row]:
    for line in lines.splitlines():
        try:
            yield msgspec.json.decode(line, type=dict[str, object])
        except msgspec.MsgspecError:
            continue  # half written, as when a host died


def _inode_of(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
