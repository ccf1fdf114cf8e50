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

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from islands.numerics.types import Bytes, Flat

# Shapes are checked under test (jaxtyping).

BLOCK = 256
"""Elements that share a scale."""

SCALE_BYTES = 2


@dataclass(frozen=True, slots=True)
class BlockCodec:
    """One block codec, whose loops are `encode_…` and `decode_…` of `codec_kernel`.

    It has so many codes in a byte, and so many scales for a block; `code` is the dtype in which a
    loop sees the bytes of the codes.
    """

    name: str
    per_byte: int
    scales: int
    code: type[np.generic] = np.uint8

    def encode(self, values: Flat) -> Bytes:
        scales = np.empty(self._scale_count(values.size), np.uint16)
        length = self._code_bytes(values.size)
        encoded = np.empty(length + scales.nbytes, np.uint8)
        plain = np.require(values, np.float32, ["C", "A"])
        self._loop("encode")(plain, encoded[:length].view(self.code), scales)
        encoded[length:] = scales.view(np.uint8)
        return encoded

    def decode(self, encoded: Bytes, size: int) -> Flat:
        values, length = np.empty(size, np.float32), self._code_bytes(size)
        scales: NDArray[np.uint16] = np.frombuffer(encoded[length:].tobytes(), np.uint16)  # aligned
        self._loop("decode")(encoded[:length].view(self.code), scales, values)
        return values

    def size_bytes(self, size: int) -> int:
        return self._code_bytes(size) + SCALE_BYTES * self._scale_count(size)

    def _code_bytes(self, size: int) -> int:
        return -(-size // self.per_byte)

    def _scale_count(self, size: int) -> int:
        return self.scales * -(-size // BLOCK)

    def _loop(self, way: str) -> Any:  # noqa: ANN401  (an object of the compiler)
        from islands.numerics import codec_kernel

        return getattr(codec_kernel, f"{way}_{self.name}")
