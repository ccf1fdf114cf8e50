"""The loop of the sparse codec, compiled by numba, which `islands.numerics.top_k` calls.

The k-th largest magnitude of a block is found by bisection on the bits of magnitudes, whose order
as integers is that of the floats they encode: each of at most 31 passes counts the magnitudes that
are not below the middle, with vector registers, and the first count of exactly k ends the search.
"""

import numpy as np
from numpy.typing import NDArray

from islands.numerics.codec_kernel import (
    BYTES,
    COUNT,
    FLOATS_GIVEN,
    MAGNITUDE,
    SCALES,
    ByteArray,
    FloatArray,
    ScaleArray,
    compiled,
    largest_bits,
    two_bit_scales,
)

BLOCK = 4096  # elements among which the largest are chosen: positions of 12 bits
_NEAR = 4 << 23  # a sixteenth of the largest magnitude: mostly the threshold is above

Magnitudes = NDArray[np.int32]


@compiled()
def _count(magnitudes: Magnitudes, below: np.int32) -> np.int32:
    """Return how many magnitudes are above this one."""
    found = np.int32(0)
    for i in range(magnitudes.size):
        found = np.int32(found + np.int32(magnitudes[i] > below))  # 32 bits wide: more per register
    return found


@compiled()
def _threshold(magnitudes: Magnitudes, largest: int, kept: int) -> int:
    """Return a magnitude that at least `kept` elements reach, and fewer exceed, or just so many."""
    low, high = 0, largest + 1
    near = largest - _NEAR
    if near > 0 and _count(magnitudes, np.int32(near - 1)) >= kept:
        low = near
    while high - low > 1:
        middle = (low + high) // 2
        found = _count(magnitudes, np.int32(middle - 1))
        if found >= kept:
            low = middle
        else:
            high = middle
        if found == kept:
            break
    return low


@compiled(FLOATS_GIVEN, COUNT, SCALES, BYTES, SCALES)
def choose(
    values: FloatArray, kept: int, positions: ScaleArray, codes: ByteArray, scales: ScaleArray
) -> None:
    """Write the positions in each block of its largest magnitudes, their codes, and two scales.

    A block has `kept` of them, and the last one what remains of `positions`. Of equal magnitudes
    the first are taken.
    """
    bits = values.view(np.uint32)
    chosen, magnitudes = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.int32)
    first = 0
    for block in range(scales.size // 2):
        start = block * BLOCK
        x, own_bits = values[start : start + BLOCK], bits[start : start + BLOCK]
        last = min(first + kept, positions.size)
        own, code = positions[first:last], codes[first:last]
        part = magnitudes[: x.size]
        for i in range(x.size):
            part[i] = np.int32(own_bits[i] & MAGNITUDE)
        least = _threshold(part, int(largest_bits(own_bits)), own.size)
        equal = own.size - _count(part, np.int32(least))
        k = 0
        for i in range(x.size):
            if part[i] >= least and k < own.size:
                if part[i] == least:
                    if equal == 0:
                        continue
                    equal -= 1
                own[k] = np.uint16(i)
                chosen[k] = x[i]
                k += 1
        y = chosen[: own.size]
        limit = two_bit_scales(y, y.view(np.uint32), scales[2 * block : 2 * block + 2])
        for i in range(y.size):
            sign = np.uint8(2) if y[i] < 0 else np.uint8(0)
            code[i] = sign | np.uint8(abs(y[i]) > limit)
        first = last
