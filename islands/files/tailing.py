"""Reads a file as it grows, as whole lines; of one that was rotated, the rest first."""

import os
from pathlib import Path

import msgspec

from islands.files.growing_files import older
from islands.files.whole_files import open_plain, read_plain, replace_file

AT_ONCE_BYTES = 2**20


class Position(msgspec.Struct):
    """How far a file was read: its inode, 0 before that, and where the next line begins."""

    inode: int = 0
    offset: int = 0


class Tail:
    """Follows a file, which need not exist yet; `kept` is a file that stores its position."""

    def __init__(self, path: Path, kept: Path | None = None) -> None:
        self._path = path
        self._kept = kept
        self.position = Position()
        if kept is not None and kept.exists():
            self.position = msgspec.json.decode(read_plain(kept), type=Position)

    def keep(self) -> None:
        """Keep how far the file was read; what was read since the last time is read again."""
        assert self._kept is not None, "only a reader with such a file keeps it"
        replace_file(self._kept, msgspec.json.encode(self.position))

    def read(self) -> bytes:
        """Return lines that came since the last call, some of them at once; none: no more."""
        for path in (older(self._path), self._path):
            try:
                file = open_plain(path)
            except FileNotFoundError:  # it may be rotated just now
                continue
            with file:
                inode = os.fstat(file.fileno()).st_ino
                if path != self._path and self.position.inode == _inode_of(self._path):
                    continue  # it was read before it was rotated
                if self.position.inode != inode:
                    self.position.inode, self.position.offset = inode, 0
                file.seek(self.position.offset)
                text = file.read(AT_ONCE_BYTES)
                if b"\n" not in text:
                    text += file.readline()  # a line that is longer
            whole = text[: text.rfind(b"\n") + 1]
            self.position.offset += len(whole)
            if whole:
                return whole
        return b""


def _inode_of(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
