"""A small file system in memory, to be filled: `with small_disk(folder) as disk: disk.fill()`.

Needs root; `unavailable` says why there can be none.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 4096
FILL_S = 0.01


def unavailable() -> str | None:
    """Why no file system can be mounted here; None if one can."""
    if os.geteuid() != 0:
        return "only root mounts a file system"
    missing = [tool for tool in ("mount", "umount") if shutil.which(tool) is None]
    return f"{missing[0]} is not installed" if missing else None


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A file system of its own."""

    folder: Path

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file:
            while True:  # until no block is left
                try:
                    file.write(bytes(BLOCK_BYTES))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def kept_full(disks: Sequence[SmallDisk]) -> AsyncIterator[None]:
    """Disks that take nothing meanwhile: whatever becomes free on them is taken at once."""

    async def fill() -> None:
        while True:  # until it is cancelled
            for disk in disks:
                disk.fill()
            await asyncio.sleep(FILL_S)

    filling = asyncio.create_task(fill())
    try:
        yield
    finally:
        filling.cancel()
        for disk in disks:
            disk.empty()


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mount one on a folder, which is made, and take it away again in any case."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes},mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "islands-test", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield SmallDisk(folder)
    finally:
        command = ["umount", "--lazy", str(folder)]
        subprocess.run(command, check=True, capture_output=True)
