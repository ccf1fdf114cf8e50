"""Buffers of numbers: arrays viewed as bytes, their digest, and a pool of receive buffers.

The receiver knows element type and shape of every buffer from its own layout. It trusts nothing
that the sender says about a buffer.
"""

import sys
from collections.abc import Sequence

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from messaging.envelope import Envelope
from messaging.errors import LocalFault

DIGEST_BYTES = 16


def as_buffer(array: NDArray[np.generic]) -> memoryview:
    """View a contiguous array as read-only bytes, without a copy."""
    if not array.flags.c_contiguous:
        raise LocalFault("only a contiguous, row-major array can be sent without a copy")
    return array.reshape(-1).view(np.uint8).data.toreadonly()


def digest(*buffers: memoryview) -> str:
    """Return 128 bits of the BLAKE3 digest of the bytes of all buffers, in hexadecimal."""
    hasher = blake3()
    for buffer in buffers:
        hasher.update(buffer)
    return hasher.hexdigest(length=DIGEST_BYTES)


POOLED_BYTES_MIN = 1 << 16
"""Smaller buffers are allocated each time, not pooled, because they cost little."""
POOL_BYTES = 1 << 29
IDLE_TAKES = 64
"""Buffers of a size that was not wanted so many times in a row are kept no longer."""


class BufferPool:
    """Buffers for arriving payloads, reused once nothing refers to them.

    The first touch of fresh memory costs as much as the copy into it. So the pool keeps the
    buffers that it handed out, and reuses one when no view of it is left anywhere. It reads the
    reference counts, so callers need not return a buffer, and may hold a payload for long.
    """

    def __init__(self, limit_bytes: int = POOL_BYTES) -> None:
        self.bytes_kept = 0  # in use or free
        self._limit_bytes = limit_bytes
        self._kept: dict[int, list[NDArray[np.uint8]]] = {}  # by size, longest in the pool first
        self._takes = 0
        self._wanted: dict[int, int] = {}  # by size, how many were taken when it was wanted last

    def take(self, size_bytes: int) -> memoryview:
        """Return a writable buffer of unspecified content."""
        if size_bytes < POOLED_BYTES_MIN:
            return memoryview(bytearray(size_bytes))
        self._takes += 1
        if size_bytes in self._kept:
            self._wanted[size_bytes] = self._takes
        for idle in [s for s in self._kept if self._takes - self._wanted[s] > IDLE_TAKES]:
            self._drop(idle)
        array = _first_free(self._kept.get(size_bytes, []))
        if array is None:
            array = np.empty(size_bytes, np.uint8)
            self._make_room(size_bytes)
            if self.bytes_kept + size_bytes <= self._limit_bytes:
                self.bytes_kept += size_bytes
                self._kept.setdefault(size_bytes, []).append(array)
                self._wanted[size_bytes] = self._takes
        return array[:].data  # a fresh view, so that whatever derives from it refers to `array`

    def allocate(self, envelope: Envelope, sizes: tuple[int, ...]) -> Sequence[memoryview]:
        return [self.take(size) for size in sizes]

    def _make_room(self, size_bytes: int) -> None:
        """Drop buffers of other sizes, those longest in the pool first, until there is room."""
        for other in list(self._kept):
            if self.bytes_kept + size_bytes <= self._limit_bytes:
                return
            if other != size_bytes:
                self._drop(other)

    def _drop(self, size_bytes: int) -> None:
        """Forget the buffers of a size; whoever uses one goes on doing so."""
        self.bytes_kept -= size_bytes * len(self._kept.pop(size_bytes))
        del self._wanted[size_bytes]


def _references(arrays: list[NDArray[np.uint8]]) -> list[int]:
    return [sys.getrefcount(array) for array in arrays]


_REFERENCES_WHEN_FREE = _references([np.empty(1, np.uint8)])[0]  # it differs by Python version


def _first_free(arrays: list[NDArray[np.uint8]]) -> NDArray[np.uint8] | None:
    for index, count in enumerate(_references(arrays)):
        if count == _REFERENCES_WHEN_FREE:
            return arrays[index]
    return None
