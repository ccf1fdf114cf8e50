"""Reads files of a run's folder as they grow, and in a later start on from where it was.

Files are read as whole lines, in the order of their names. How far each was read is kept in a file
of the sink's own, which is written after a sink has taken the lines: a sink that dies is given its
last lines again. Of a file that was turned over meanwhile, the rest is read first.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from islands.files.growing_files import older
from islands.files.plain_files import open_plain, read_plain
from islands.files.whole_files import replace_file
from islands.protocol.tape.entry import kind_of
from islands.protocol.tape.process_entries import ProcessBegan
from islands.sinks.sink import Row

AT_ONCE_BYTES = 2**20
BEGAN = kind_of(ProcessBegan)


class Place(msgspec.Struct):
    """How far a file was read.

    Attributes:
        inode: Tells it from the next file of its name; 0 before anything was read.
        offset: Where the next line begins.
        origin_s: Wall time at which the clock of its entries begins; 0 if it is not known.
    """

    inode: int = 0
    offset: int = 0
    origin_s: float = 0.0


class Follower:
    """Follows the files of a run's folder that have these names.

    Args:
        folder: the run's folder.
        patterns: patterns of the files' names.
        kept: the file that keeps how far they were read.
    """

    def __init__(self, folder: Path, patterns: Sequence[str], kept: Path) -> None:
        """Go on where an earlier follower was."""
        self._folder = folder
        self._patterns = patterns
        self._kept = kept
        self._places: dict[str, Place] = {}
        if kept.exists():
            self._places = msgspec.json.decode(read_plain(kept), type=dict[str, Place])

    def read(self) -> list[Row]:
        """Return records that came since the last call, some of them at once; none: no more."""
        paths = (path for each in self._patterns for path in sorted(self._folder.glob(each)))
        return [row for path in paths for row in self._read(path)]

    def keep(self) -> None:
        """Keep how far the files were read."""
        replace_file(self._kept, msgspec.json.encode(self._places))

    def _read(self, path: Path) -> Iterator[Row]:
        place = self._places.setdefault(str(path.relative_to(self._folder)), Place())
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
            yield from self._parsed(whole, place)
            if whole:
                return

    @staticmethod
    def _parsed(lines: bytes, place: Place) -> Iterator[Row]:
        for line in lines.splitlines():
            try:
                row = msgspec.json.decode(line, type=dict[str, object])
            except msgspec.MsgspecError:
                continue  # half written, as when a host died
            wall_s, at_s = row.get("wall_s"), row.get("at_s")
            if row.get("kind") == BEGAN and isinstance(wall_s, int | float):
                place.origin_s = float(wall_s)
            if isinstance(at_s, int | float):
                yield {**row, "t": place.origin_s + at_s}


def _inode_of(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
