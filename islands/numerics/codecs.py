"""Encode contributions for the wire and decode them: float32 values to bytes and back.

A format encodes a whole fragment into one flat buffer of bytes, codes first and then whatever
scales or indices it needs. A new format is an entry of `QUANTIZERS`, and a member of `Precision`.
`block_codecs` defines the lossy ones, and `top_k` the sparse one. Bytes are little-endian, as every
accelerator host is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Layout
from islands.numerics import top_k
from islands.numerics.block_codecs import BlockCodec
from islands.numerics.types import Bytes, Flat
from islands.protocol.errors import InvariantError
from islands.protocol.settings.choices import Precision
from islands.protocol.settings.run import TOP_K_SHARE

# Shapes are checked under test (jaxtyping).

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Quantizer:
    """A wire format as three pure functions; `decode` returns a view of the bytes if it can."""

    encode: Callable[[Flat], Bytes]
    decode: Callable[[Bytes, int], Flat]
    size_bytes: Callable[[int], int]


def encode(
    values: Flat, precision: Precision | str, exact: Ranges = (), share: float = TOP_K_SHARE
) -> Bytes:
    """Encode a fragment for the wire; the result is a view of the values where nothing changes.

    bfloat16 keeps 8 bits of mantissa: round to nearest, ties to even, so the relative error is at
    most 2⁻⁹ for normal numbers; values from 3.3961776e38 on become infinite; nan stays nan.
    `block_codecs` says what the other formats keep; what is not finite is never decoded as finite.

    `exact` ranges, from and to, ascend. They follow the codes as float32 where the format is
    encoded on the host: running averages, of which a variance must not become negative. `share` is
    the fraction of the elements that `top_k` sends.
    """
    quantizer = _quantizer(precision, share)
    if not (exact and Precision(precision).on_host):
        return quantizer.encode(values)
    coded = _taken(values, _outside(values.size, exact))
    return np.concatenate([quantizer.encode(coded), _taken(values, exact).view(np.uint8)])


def decode(
    buffer: bytes | bytearray | memoryview | Bytes,
    size: int,
    precision: Precision | str,
    exact: Ranges = (),
    share: float = TOP_K_SHARE,
) -> Flat:
    """Decode so many elements from the wire; a read-only view of the buffer if nothing changes.

    Raises:
        InvariantError: The buffer's length is not that of `size` elements. Check the schema of
            data from outside before calling this.
        MalformedError: The length is right, and what it holds is not (`top_k`): refuse its sender.
    """
    quantizer = _quantizer(precision, share)
    codes = np.frombuffer(buffer, np.uint8)
    if codes.size != size_bytes(size, precision, exact, share):
        raise InvariantError(f"{codes.size} bytes are not {size} elements in {precision}")
    if not (exact and Precision(precision).on_host):
        return quantizer.decode(codes, size)
    kept, values = _elements(exact), np.empty(size, np.float32)
    end = codes.size - 4 * kept
    _put(values, _outside(size, exact), quantizer.decode(codes[:end], size - kept))
    _put(values, exact, np.frombuffer(codes[end:].tobytes(), np.float32))
    return values


def size_bytes(
    size: int, precision: Precision | str, exact: Ranges = (), share: float = TOP_K_SHARE
) -> int:
    kept = _elements(exact) if Precision(precision).on_host else 0
    return _quantizer(precision, share).size_bytes(size - kept) + 4 * kept


def largest_bytes(layout: Layout, precision: Precision) -> int:
    return max(size_bytes(f.size, precision, f.averages) for f in layout.fragments)


def _quantizer(precision: Precision | str, share: float) -> Quantizer | BlockCodec:
    known = Precision(precision)
    return _sparse(share) if known is Precision.TOP_K else QUANTIZERS[known]


def _sparse(share: float) -> Quantizer:
    return Quantizer(
        partial(top_k.encode_top_k, share=share),
        partial(top_k.decode_top_k, share=share),
        partial(top_k.top_k_bytes, share=share),
    )


def _elements(exact: Ranges) -> int:
    return sum(stop - start for start, stop in exact)


def _outside(size: int, exact: Ranges) -> Ranges:
    """Return the ranges between these, which ascend."""
    ends = [0, *(end for range_ in exact for end in range_), size]
    return list(zip(ends[::2], ends[1::2], strict=True))


def _taken(values: Flat, ranges: Ranges) -> NDArray[np.float32]:
    """Return the elements of ranges, one after the other."""
    return np.concatenate([values[start:stop] for start, stop in ranges])


def _put(values: NDArray[np.float32], ranges: Ranges, elements: Flat) -> None:
    """Write elements, which lie one after the other, to ranges."""
    first = 0
    for start, stop in ranges:
        values[start:stop] = elements[first : first + stop - start]
        first += stop - start


def warm_up(precision: Precision) -> None:
    """Load or compile the loops of a format, or of all, so that no contribution waits for it.

    Compiling takes some seconds, once per installation, and then half a second. Call it from a
    worker thread.
    """
    for format_ in QUANTIZERS if precision is Precision.ADAPTIVE else (precision,):
        decode(encode(np.zeros(1, np.float32), format_), 1, format_)


def _encode_float32(values: Flat) -> Bytes:
    return np.ascontiguousarray(values).view(np.uint8)


def _decode_float32(codes: Bytes, _: int) -> Flat:
    return codes.view(np.float32)


def _encode_bfloat16(values: Flat) -> Bytes:
    with np.errstate(over="ignore", invalid="ignore"):  # the receiver refuses what is not finite
        return np.ascontiguousarray(values.astype(ml_dtypes.bfloat16)).view(np.uint8)


def _decode_bfloat16(codes: Bytes, _: int) -> Flat:
    with np.errstate(invalid="ignore"):
        values: Flat = codes.view(ml_dtypes.bfloat16).astype(np.float32)
    return values


QUANTIZERS: Mapping[Precision, Quantizer | BlockCodec] = MappingProxyType(
    {
        Precision.FLOAT32: Quantizer(_encode_float32, _decode_float32, lambda size: 4 * size),
        Precision.BFLOAT16: Quantizer(_encode_bfloat16, _decode_bfloat16, lambda size: 2 * size),
        Precision.INT8: BlockCodec("int8", per_byte=1, scales=1, code=np.int8),
        Precision.FP4: BlockCodec("fp4", per_byte=2, scales=1),
        Precision.TWO_BIT: BlockCodec("two_bit", per_byte=4, scales=2),
        Precision.TOP_K: _sparse(TOP_K_SHARE),
    }
)
