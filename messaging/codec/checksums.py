"""A checksum and the websocket mask: operations on bulk bytes that must be fast.

The checksum folds the bytes, as rows of 64-bit words, into the sum of the rows, and takes the
CRC-32 of that sum. It runs at the speed of memory, several times that of a CRC-32 over everything.
It always detects a change within a span shorter than one row, such as flipped bits, a burst, a
damaged packet. It misses changes farther apart only if they cancel in the same bit of the same
column, or with the probability of a CRC-32 collision. A row is no multiple of a page or a packet,
so the checksum detects pages in a wrong order as well.
"""

import zlib

import numpy as np
from numpy.typing import NDArray

_ROW_WORDS = 509
_ROW_BYTES = 8 * _ROW_WORDS
_KEY_BYTES = 4


def checksum(data: bytes | bytearray | memoryview, start: int = 0) -> int:
    """Return the 32-bit checksum of some bytes; `start` is that of the bytes before them."""
    rows = len(data) // _ROW_BYTES
    if rows <= 1:
        return zlib.crc32(data, start)
    words = np.frombuffer(data, "<u8", rows * _ROW_WORDS).reshape(rows, _ROW_WORDS)
    folded: NDArray[np.uint64] = np.add.reduce(words, axis=0)
    rest = memoryview(data)[rows * _ROW_BYTES :]
    return zlib.crc32(rest, zlib.crc32(folded.data, start))


def masked(data: memoryview, key: bytes) -> memoryview:
    """Return a masked copy of the data; see RFC 6455, section 5.3."""
    result = np.empty(len(data), np.uint8)
    _mask(np.frombuffer(data, np.uint8), key, result)
    return result.data


def mask_in_place(data: memoryview, key: bytes) -> None:
    """Apply a mask to the data, or remove it: both are the same operation."""
    array = np.frombuffer(data, np.uint8)
    _mask(array, key, array)


def rotated(key: bytes, by: int) -> bytes:
    """Return the mask key for data that begins `by` bytes later."""
    by %= _KEY_BYTES
    return key[by:] + key[:by]


def _mask(source: NDArray[np.uint8], key: bytes, target: NDArray[np.uint8]) -> None:
    whole = len(source) // _KEY_BYTES * _KEY_BYTES
    word = np.frombuffer(key, np.uint32)
    np.bitwise_xor(source[:whole].view(np.uint32), word, out=target[:whole].view(np.uint32))
    rest = len(source) - whole
    if rest:
        np.bitwise_xor(source[whole:], np.frombuffer(key, np.uint8)[:rest], out=target[whole:])
