"""How fast the disk of a folder writes and flushes: a file is written there and removed."""

import os
import tempfile
from pathlib import Path

from messaging.clock import Clock, MonotonicClock

PIECE_BYTES = 1 << 22


def write_bytes_per_s(folder: Path, size_bytes: int, clock: Clock | None = None) -> float | None:
    """Measure the speed of writing and flushing one file; None if it cannot be written.

    Args:
        folder: an existing folder on the disk; the file in it has no name, so it goes with this
            process whatever happens.
        size_bytes: size of the file. A small one may fit into the disk's own memory.
        clock: by which it is timed; None for the system's monotonic clock.
    """
    clock = clock or MonotonicClock()
    piece = os.urandom(PIECE_BYTES)
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            began_s = clock.now_s()
            for start in range(0, size_bytes, PIECE_BYTES):
                file.write(memoryview(piece)[: size_bytes - start])
            os.fsync(file.fileno())
            return size_bytes / max(clock.now_s() - began_s, 1e-9)
    except OSError:
        return None
