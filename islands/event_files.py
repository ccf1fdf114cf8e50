"""TensorBoard's events of a run, within a limit: a growing file beside earlier ones.

TensorBoard reads all files of a folder, in the order of their names; a full one is closed, the next
one begun, and the oldest removed. Importing this module takes a while, so it is done where needed.
"""

from pathlib import Path

from tensorboardX import SummaryWriter

from islands.rotation import LIMIT_BYTES

SCALAR_BYTES = 64
"""Most bytes that a scalar takes in an event file, beside its tag."""


class EventFiles:
    """Writes the curves of a run.

    Args:
        folder: of the files.
        limit_bytes: at which a file is turned over, and most that earlier files hold together.
    """

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        """Begin a new file."""
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._size = self._files = 0
        self._writer = self._begin()

    def add(self, tag: str, value: float, step: int) -> None:
        """Add a point of a curve."""
        self._writer.add_scalar(tag, value, step)
        self._size += SCALAR_BYTES + len(tag)
        if self._size >= self._limit_bytes:
            self._writer.close()
            self._writer = self._begin()

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()

    def _begin(self) -> SummaryWriter:
        self._drop_oldest()
        self._size = 0
        self._files += 1  # two that begin in one second need two names
        return SummaryWriter(str(self._folder), filename_suffix=f".{self._files}")

    def _drop_oldest(self) -> None:
        found = sorted(
            (path.stat().st_mtime_ns, path.name, path.stat().st_size, path)
            for path in self._folder.glob("*tfevents*")
        )
        held = sum(size for _, _, size, _ in found)
        for _, _, size, path in found:
            if held <= self._limit_bytes:
                break
            path.unlink(missing_ok=True)
            held -= size
