"""How fast the disk of a folder writes and flushes: a file is written there and removed."""

import os
import tempfile
import time
from pathlib import Path

PIECE_BYTES = 1 << 22


def write_bytes_per_s(folder: Path, size_bytes: int) -> float | None:
    """Measure the speed of writing and flushing one file; None if it cannot be written.

    Args:
        folder: an existing folder on the disk; the file in it has no name, so it goes with this
            process whatever happens.
        size_bytes: size of the file. A small one may fit into the disk's own memory.
    """
    piece = os.urandom(PIECE_BYTES)
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            began_s = time.perf_counter()
            for start in range(0, size_bytes, PIECE_BYTES):
                file.write(memoryview(piece)[: size_bytes - start])
            os.fsync(file.fileno())
            return size_bytes / max(time.perf_counter() - began_s, 1e-9)
    except OSError:
        return None
