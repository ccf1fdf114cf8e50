"""Block codecs: int8, fp4 and two bits, with scales in bfloat16 for every 256 elements.

With x the elements of a block, in row-major order, and bf16(·) rounding to nearest even::

    int8     s = bf16(max|x| / 127)    x̂ = s · clip(round(x / s), −127, 127)            8.06 bits
    fp4      s = bf16(max|x|)          x̂ = ± s · nearest of 0, 2⁻⁶, 2⁻⁵, …, 2⁰           4.06 bits
    two_bit  t = √(mean x²)            x̂ = ± mean of |x| ≤ t, or of |x| > t, in bf16    2.13 bits

`round` is to nearest even; fp4's nearest is in the linear domain, and of two equally near values it
is the larger one. A block without a scale is zero. Scales saturate at the largest value with which
every decoded element is finite. Numbers below 2⁻¹²⁶ are zero by definition: in what is encoded, as
a scale, and in what is decoded (fp4). In two_bit a zero is decoded as plus or minus the mean of the
small ones, which is zero only where all of these are.

A decoded element is a product of at most 15 significant bits, so it is exact: NumPy and XLA decode
the same bits, whether or not they fuse a following addition. What is finite stays finite. If an
element is not, the scales of its block are nan, and so are all its decoded elements.

Bytes: all codes (`codec_kernel` says how they are packed), then all scales.

Reference:
    Streaming DiLoCo (arXiv 2501.18512): fp4 with three bits of exponent and none of mantissa
    (E3M0) for outer gradients; protocol §5. Two bits with error feedback: MuLoCo (arXiv 2505.23725)
    and SparseLoCo (arXiv 2508.15706), statistical quantization, which decodes to the means of bins.

Deviation (ours, for two_bit):
    The bins are symmetric, a sign and two magnitudes, and lie in blocks; there, in whole tensors,
    they are four intervals around the mean. Means are what makes it fit for error feedback: they
    are nearest to their bins, so ‖x − x̂‖ < ‖x‖ for every block but zero.
"""

import numpy as np
from numpy.typing import NDArray

from islands.numerics.types import Bytes, Flat

# Shapes are checked under test (jaxtyping).

BLOCK = 256
"""Elements that share a scale."""

SCALE_BYTES = 2

Scales = NDArray[np.uint16]


def encode_int8(values: Flat) -> Bytes:
    """Encode with a byte for each element."""
    from islands.numerics import codec_kernel

    encoded, codes, scales = _room(values.size, values.size, 1)
    codec_kernel.encode_int8(_plain(values), codes.view(np.int8), scales)
    return _joined(encoded, scales)


def decode_int8(encoded: Bytes, size: int) -> Flat:
    """Decode so many elements."""
    from islands.numerics import codec_kernel

    values = np.empty(size, np.float32)
    codec_kernel.decode_int8(encoded[:size].view(np.int8), _scales(encoded, size), values)
    return values


def encode_fp4(values: Flat) -> Bytes:
    """Encode with half a byte for each element."""
    from islands.numerics import codec_kernel

    encoded, codes, scales = _room(values.size, -(-values.size // 2), 1)
    codec_kernel.encode_fp4(_plain(values), codes, scales)
    return _joined(encoded, scales)


def decode_fp4(encoded: Bytes, size: int) -> Flat:
    """Decode so many elements."""
    from islands.numerics import codec_kernel

    values, length = np.empty(size, np.float32), -(-size // 2)
    codec_kernel.decode_fp4(encoded[:length], _scales(encoded, length), values)
    return values


def encode_two_bit(values: Flat) -> Bytes:
    """Encode with a quarter of a byte for each element."""
    from islands.numerics import codec_kernel

    encoded, codes, scales = _room(values.size, -(-values.size // 4), 2)
    codec_kernel.encode_two_bit(_plain(values), codes, scales)
    return _joined(encoded, scales)


def decode_two_bit(encoded: Bytes, size: int) -> Flat:
    """Decode so many elements."""
    from islands.numerics import codec_kernel

    values, length = np.empty(size, np.float32), -(-size // 4)
    codec_kernel.decode_two_bit(encoded[:length], _scales(encoded, length), values)
    return values


def int8_bytes(size: int) -> int:
    """Return the length of so many elements in int8."""
    return size + SCALE_BYTES * blocks(size)


def fp4_bytes(size: int) -> int:
    """Return the length of so many elements in fp4."""
    return -(-size // 2) + SCALE_BYTES * blocks(size)


def two_bit_bytes(size: int) -> int:
    """Return the length of so many elements in two bits."""
    return -(-size // 4) + 2 * SCALE_BYTES * blocks(size)


def blocks(size: int) -> int:
    """Return how many blocks so many elements are cut into."""
    return -(-size // BLOCK)


def _room(size: int, length: int, per_block: int) -> tuple[Bytes, NDArray[np.uint8], Scales]:
    """Return room for an encoding of so many codes, its codes, and its scales, apart."""
    scales = np.empty(per_block * blocks(size), np.uint16)
    encoded = np.empty(length + scales.nbytes, np.uint8)
    return encoded, encoded[:length], scales


def _plain(values: Flat) -> Flat:
    return np.require(values, np.float32, ["C", "A"])


def _joined(encoded: Bytes, scales: Scales) -> Bytes:
    encoded[encoded.size - scales.nbytes :] = scales.view(np.uint8)
    return encoded


def _scales(encoded: Bytes, length: int) -> Scales:
    """Return an aligned copy of the scales, which follow so many bytes of codes."""
    return np.frombuffer(encoded[length:].tobytes(), np.uint16)
