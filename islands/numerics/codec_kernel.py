"""The compiled loops of the codecs, which `islands.numerics` imports when one is used.

A block is 256 elements in row-major order, the last one short. A loop reads each block once from
memory: it finds the scale, then writes the codes while the block is in the nearest cache. Scales
are bfloat16, as the upper half of a float32's bits.

Magnitudes are compared as integers, whose order is that of the floats they encode; so one maximum
finds both the largest magnitude and whether all elements are finite. Then the scale is nan, which
every decoded element of the block inherits.

Codes of less than a byte are packed by strides: with q codes per byte, byte i of a block of m
elements holds the elements i, i + s, i + 2s, …, s = ⌈m/q⌉, the first in the lowest bits. So
neighbours lie in neighbouring bytes, and vector registers can be used without shuffling.

Signatures are given, so that a read-only array does not compile another version in a run's middle.
Loops run over views of a block, from 0 on: otherwise each index might be negative, and would be
checked. Sums may be reordered, as in the merge (`merge_kernel`); nothing else is.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from islands.numerics.compiler import Compiler, compiled

FloatArray = NDArray[np.float32]
ByteArray = NDArray[np.uint8]
SignedByteArray = NDArray[np.int8]
ScaleArray = NDArray[np.uint16]
BitsArray = NDArray[np.uint32]

BLOCK = 256  # elements that share a scale
SPARSE_BLOCK = 4096  # elements among which the largest are chosen: positions of 12 bits

_LEAST = np.uint32(0x00800000)  # bits of 2⁻¹²⁶, the smallest normal number
INFINITE = np.uint32(0x7F800000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_NAN_SCALE = np.uint16(0x7FC0)
_LARGEST_SCALE = np.uint16(0x7F7F)  # the largest finite bfloat16
_LARGEST_INT8_SCALE = np.uint16(0x7C01)  # the largest bfloat16 whose 127-fold is finite
_INT8_CODES = np.float32(127)
_NEAR = 4 << 23  # a sixteenth of the largest magnitude: mostly the threshold is above
_ROUND = np.float32(12582912)  # 1.5·2²³: adding it rounds to an integer, ties to even

_COMPILER: Compiler = types
_BYTES = _COMPILER.Array(_COMPILER.uint8, 1, "C")
_COUNT = _COMPILER.int64
_SIGNED = _COMPILER.Array(_COMPILER.int8, 1, "C")
_SCALES = _COMPILER.Array(_COMPILER.uint16, 1, "C")
_FLOATS = _COMPILER.Array(_COMPILER.float32, 1, "C")
_BITS = _COMPILER.Array(_COMPILER.uint32, 1, "C")


def _given(kind: Compiler) -> Compiler:
    """Return the type of an array that a loop only reads."""
    return _COMPILER.Array(kind, 1, "C", readonly=True)


_FLOATS_GIVEN = _given(_COMPILER.float32)
_BYTES_GIVEN = _given(_COMPILER.uint8)
_SIGNED_GIVEN = _given(_COMPILER.int8)
_SCALES_GIVEN = _given(_COMPILER.uint16)


@compiled()
def _largest_bits(bits: BitsArray) -> np.uint32:
    """Return the bits of the largest magnitude; `INFINITE` or more if one is not finite."""
    largest = np.uint32(0)
    for k in range(bits.size):
        magnitude = bits[k] & _MAGNITUDE
        largest = max(largest, magnitude)
    return largest


@compiled()
def _rounded(bits: np.uint32, largest: np.uint16) -> np.uint16:
    """Round a positive finite float32 to bfloat16, ties to even, at most `largest`."""
    if bits < _LEAST:
        return np.uint16(0)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return min(np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)), largest)


@compiled()
def _float_of(bits: np.uint32) -> np.float32:
    """Return the float32 with these bits."""
    one = np.empty(1, np.uint32)
    one[0] = bits
    found: np.float32 = one.view(np.float32)[0]
    return found


@compiled()
def _widened(scale: np.uint16) -> np.float32:
    """Return a bfloat16 as float32."""
    return _float_of(np.uint32(scale) << np.uint32(16))


@compiled()
def _bits_of(number: np.float32) -> np.uint32:
    """Return the bits of a float32."""
    one = np.empty(1, np.float32)
    one[0] = number
    found: np.uint32 = one.view(np.uint32)[0]
    return found


# --- int8 -------------------------------------------------------------------------------------


@compiled(_FLOATS_GIVEN, _SIGNED, _SCALES)
def encode_int8(values: FloatArray, codes: SignedByteArray, scales: ScaleArray) -> None:
    """Write round(x / scale) in −127…127, scale = largest magnitude of the block / 127."""
    bits = values.view(np.uint32)
    for block in range(scales.size):
        start = block * BLOCK
        stop = min(start + BLOCK, values.size)
        x, code = values[start:stop], codes[start:stop]
        largest = _largest_bits(bits[start:stop])
        if largest >= INFINITE:
            scales[block] = _NAN_SCALE
        else:
            largest_scale = _bits_of(_float_of(largest) / _INT8_CODES)
            scales[block] = _rounded(largest_scale, _LARGEST_INT8_SCALE)
        if scales[block] == 0 or scales[block] == _NAN_SCALE:
            code[:] = 0
            continue
        scale = _widened(scales[block])
        for k in range(x.size):
            rounded = (x[k] / scale + _ROUND) - _ROUND
            rounded = min(_INT8_CODES, rounded)
            rounded = max(-_INT8_CODES, rounded)
            code[k] = np.int8(np.int32(rounded))


@compiled(_SIGNED_GIVEN, _SCALES_GIVEN, _FLOATS)
def decode_int8(codes: SignedByteArray, scales: ScaleArray, values: FloatArray) -> None:
    """Write code · scale, which is exact: 8 bits times 7 bits."""
    for block in range(scales.size):
        start = block * BLOCK
        stop = min(start + BLOCK, values.size)
        scale = _widened(scales[block])
        x, code = values[start:stop], codes[start:stop]
        for k in range(x.size):
            x[k] = np.float32(code[k]) * scale


# --- fp4 --------------------------------------------------------------------------------------


@compiled()
def _middle(scale: np.float32, fraction: np.float32) -> np.int32:
    """Return the bits of a fraction of the scale, but at least those of 2⁻¹²⁶."""
    return np.int32(max(_bits_of(scale * fraction), _LEAST))


@compiled()
def _fp4_codes(bits: BitsArray, scale: np.float32, code: ByteArray) -> None:
    """Write the codes of a block: how many midpoints between levels are at most |x|, and a sign."""
    a = _middle(scale, np.float32(0.0078125))
    b = _middle(scale, np.float32(0.0234375))
    c = _middle(scale, np.float32(0.046875))
    d = _middle(scale, np.float32(0.09375))
    e = _middle(scale, np.float32(0.1875))
    f = _middle(scale, np.float32(0.375))
    g = _middle(scale, np.float32(0.75))
    for k in range(bits.size):
        x = np.int32(bits[k] & _MAGNITUDE)
        index = np.int32(x >= a) + np.int32(x >= b) + np.int32(x >= c) + np.int32(x >= d)
        index += np.int32(x >= e) + np.int32(x >= f) + np.int32(x >= g)
        sign = np.int32((bits[k] >> np.uint32(28)) & np.uint32(8))
        code[k] = np.uint8(index | sign)


@compiled(_FLOATS_GIVEN, _BYTES, _SCALES)
def encode_fp4(values: FloatArray, codes: ByteArray, scales: ScaleArray) -> None:
    """Write a sign and the index of the nearest of 0 and 2⁻⁶…2⁰ times the block's scale."""
    bits = values.view(np.uint32)
    code = np.zeros(2 * BLOCK, np.uint8)
    for block in range(scales.size):
        start = block * BLOCK
        stop = min(start + BLOCK, values.size)
        part = bits[start:stop]
        largest = _largest_bits(part)
        scales[block] = _NAN_SCALE if largest >= INFINITE else _rounded(largest, _LARGEST_SCALE)
        code[:] = 0
        if scales[block] != 0 and scales[block] != _NAN_SCALE:
            _fp4_codes(part, _widened(scales[block]), code)
        stride = (part.size + 1) // 2
        packed, second = codes[start // 2 : start // 2 + stride], code[stride:]
        for k in range(packed.size):
            packed[k] = code[k] | (second[k] << np.uint8(4))


@compiled(_BYTES_GIVEN, _SCALES_GIVEN, _FLOATS)
def decode_fp4(codes: ByteArray, scales: ScaleArray, values: FloatArray) -> None:
    """Write the value of each code; it is exact, since all shares are powers of two."""
    table = np.zeros(16, np.float32)
    least = _float_of(_LEAST)
    for block in range(scales.size):
        start = block * BLOCK
        stop = min(start + BLOCK, values.size)
        level = _widened(scales[block])
        for index in range(7, -1, -1):
            if index == 0 or abs(level) < least:
                level = level * np.float32(0)  # nan stays
            table[index], table[index + 8] = level, -level
            level = level * np.float32(0.5)
        stride = (stop - start + 1) // 2
        packed = codes[start // 2 : start // 2 + stride]
        first, second = values[start : start + stride], values[start + stride : stop]
        for k in range(first.size):
            first[k] = table[packed[k] & np.uint8(15)]
        for k in range(second.size):
            second[k] = table[packed[k] >> np.uint8(4)]


# --- two bits ---------------------------------------------------------------------------------


@compiled(reordered=True)
def _squares(values: FloatArray) -> float:
    """Return Σ x² of one block."""
    total = 0.0
    for k in range(values.size):
        total += np.float64(values[k]) * np.float64(values[k])
    return total


@compiled(reordered=True)
def _sums(values: FloatArray, limit: np.float32) -> tuple[float, float, np.int32]:
    """Return Σ|x| of the small and of the large elements of a block, and how many are large."""
    small = 0.0
    large = 0.0
    count = np.int32(0)
    for k in range(values.size):
        x = np.float64(abs(values[k]))
        is_large = abs(values[k]) > limit
        large += x if is_large else 0.0
        small += 0.0 if is_large else x
        count += np.int32(is_large)
    return small, large, count


@compiled()
def _two_bit_scales(x: FloatArray, bits: BitsArray, scales: ScaleArray) -> np.float32:
    """Write both scales of a block of values, and return the limit above which one is large."""
    scales[0] = scales[1] = _NAN_SCALE
    if _largest_bits(bits) >= INFINITE:
        return np.float32(0)
    limit = np.float32(np.sqrt(_squares(x) / x.size))
    small, large, count = _sums(x, limit)
    rest = np.int32(x.size) - count
    low = np.float32(small / rest) if rest > 0 else np.float32(0)
    high = np.float32(large / count) if count > 0 else np.float32(0)
    scales[0] = _rounded(_bits_of(low), _LARGEST_SCALE)
    scales[1] = _rounded(_bits_of(high), _LARGEST_SCALE)
    return limit


@compiled(_FLOATS_GIVEN, _BYTES, _SCALES)
def encode_two_bit(values: FloatArray, codes: ByteArray, scales: ScaleArray) -> None:
    """Write a sign and whether |x| exceeds the block's root mean square; scales are two means."""
    bits = values.view(np.uint32)
    code = np.zeros(4 * BLOCK, np.uint8)
    for block in range(scales.size // 2):
        start = block * BLOCK
        stop = min(start + BLOCK, values.size)
        x, part = values[start:stop], bits[start:stop]
        limit = _two_bit_scales(x, part, scales[2 * block : 2 * block + 2])
        code[:] = 0
        for k in range(x.size):
            sign = np.int32((part[k] >> np.uint32(30)) & np.uint32(2))
            code[k] = np.uint8(np.int32(abs(x[k]) > limit) | sign)
        stride = (x.size + 3) // 4
        packed = codes[start // 4 : start // 4 + stride]
        second, third, fourth = code[stride:], code[2 * stride :], code[3 * stride :]
        for k in range(packed.size):
            upper = (third[k] << np.uint8(4)) | (fourth[k] << np.uint8(6))
            packed[k] = code[k] | (second[k] << np.uint8(2)) | upper


@compiled(_BYTES_GIVEN, _SCALES_GIVEN, _FLOATS)
def decode_two_bit(codes: ByteArray, scales: ScaleArray, values: FloatArray) -> None:
    """Write ± the mean that each code names."""
    table = np.zeros(4, np.float32)
    for block in range(scales.size // 2):
        start = block * BLOCK
        stop = min(start + BLOCK, values.size)
        for index in range(2):
            table[index] = _widened(scales[2 * block + index])
            table[index + 2] = -table[index]
        stride = (stop - start + 3) // 4
        packed = codes[start // 4 : start // 4 + stride]
        for quarter in range(4):
            x = values[
                min(stop, start + quarter * stride) : min(stop, start + (quarter + 1) * stride)
            ]
            for k in range(x.size):
                x[k] = table[(packed[k] >> np.uint8(2 * quarter)) & np.uint8(3)]


# --- top-k ------------------------------------------------------------------------------------


@compiled()
def _count(magnitudes: NDArray[np.int32], below: np.int32) -> np.int32:
    """Return how many magnitudes are above this one."""
    found = np.int32(0)
    for i in range(magnitudes.size):
        found = np.int32(found + np.int32(magnitudes[i] > below))  # 32 bits wide: more per register
    return found


@compiled()
def _threshold(magnitudes: NDArray[np.int32], largest: int, kept: int) -> int:
    """Return a magnitude that at least `kept` elements reach, and fewer exceed, or just so many.

    It is found by bisection on the bits of magnitudes: each of at most 31 passes counts those that
    are not below the middle, with vector registers, and the first count of exactly k ends it.
    """
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


@compiled(_FLOATS_GIVEN, _COUNT, _SCALES, _BYTES, _SCALES)
def choose(
    values: FloatArray, kept: int, positions: ScaleArray, codes: ByteArray, scales: ScaleArray
) -> None:
    """Write the positions in each block of its largest magnitudes, their codes, and two scales.

    A block has `kept` of them, and the last one what remains of `positions`. Of equal magnitudes
    the first are taken.
    """
    bits = values.view(np.uint32)
    chosen, magnitudes = np.empty(SPARSE_BLOCK, np.float32), np.empty(SPARSE_BLOCK, np.int32)
    first = 0
    for block in range(scales.size // 2):
        start = block * SPARSE_BLOCK
        x, own_bits = values[start : start + SPARSE_BLOCK], bits[start : start + SPARSE_BLOCK]
        last = min(first + kept, positions.size)
        own, code = positions[first:last], codes[first:last]
        part = magnitudes[: x.size]
        for i in range(x.size):
            part[i] = np.int32(own_bits[i] & _MAGNITUDE)
        least = _threshold(part, int(_largest_bits(own_bits)), own.size)
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
        limit = _two_bit_scales(y, y.view(np.uint32), scales[2 * block : 2 * block + 2])
        for i in range(y.size):
            sign = np.uint8(2) if y[i] < 0 else np.uint8(0)
            code[i] = sign | np.uint8(abs(y[i]) > limit)
        first = last


# --- increments -------------------------------------------------------------------------------


@compiled(_FLOATS_GIVEN, _FLOATS, _BITS)
def add_flushed(published: FloatArray, values: FloatArray, largest: BitsArray) -> None:
    """Add published values to increments, in place; what is below 2⁻¹²⁶ counts as zero.

    That is true of terms and sums. `largest` is given the bits of the largest magnitude of all
    sums: `INFINITE` or more if one is not finite.
    """
    least = _float_of(_LEAST)
    none = np.float32(0)
    bits = values.view(np.uint32)
    for start in range(0, values.size, BLOCK):
        stop = min(start + BLOCK, values.size)
        x, y = published[start:stop], values[start:stop]
        for k in range(y.size):
            first = none if abs(x[k]) < least else x[k]
            second = none if abs(y[k]) < least else y[k]
            both = first + second
            y[k] = none if abs(both) < least else both
        largest[0] = max(largest[0], _largest_bits(bits[start:stop]))
