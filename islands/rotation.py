"""Files that grow as long as a run does: at a limit each is turned over, and one older is kept.

A file and the one before it never hold more than twice the limit (and a last entry), whatever the
run does and however long it takes. Readers take `older(path)` first, if it is there. A tape,
`metrics.jsonl` and `run.log` are `RotatingFile`s; a child process holds its output itself, which
is emptied under it (`islands.process_output`); TensorBoard's events are `islands.event_files`.
"""

import contextlib
from pathlib import Path
from typing import IO

LIMIT_BYTES = 256 * 2**20


def older(path: Path) -> Path:
    """Where the file of this name lies that was full."""
    return path.with_name(f"{path.stem}.1{path.suffix}")


class RotatingFile:
    """Appends to a file, and turns it over when it has grown to a limit.

    Args:
        path: of the growing file; a file that is there is continued.
        limit_bytes: at which it is turned over.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        """Open the file."""
        self._path = path
        self._limit_bytes = limit_bytes
        self._file: IO[bytes] = path.open("ab")
        self._size = path.stat().st_size

    def write(self, data: bytes, *, flush: bool = True) -> None:
        """Append whole lines; unless they are flushed, the next ones are waited for.

        Raises:
            OSError: the disk is full or broken; what was given may be lost, the next may not.
        """
        self._file.write(data)
        self._size += len(data)
        if flush:
            self._file.flush()
        if self._size >= self._limit_bytes:
            self._turn_over()

    def close(self) -> None:
        """Write what is buffered.

        Raises:
            OSError: the disk is full or broken.
        """
        self._file.close()

    def _turn_over(self) -> None:
        """Begin a new file; if that fails, the next write tries again."""
        with contextlib.suppress(FileNotFoundError):  # it was moved before, and no more than that
            self._path.replace(older(self._path))
        full, self._file = self._file, self._path.open("ab")
        self._size = 0
        full.close()
