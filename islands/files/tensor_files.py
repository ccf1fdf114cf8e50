"""Headers of files in the format of safetensors: metadata, and which tensors a file holds.

    file = length of the header (64 bits, little-endian) · header (JSON) · tensors

Spaces fill the header up to a multiple of 8 bytes. Tensors lie one behind the other, in the order
of the header.
"""

from collections.abc import Iterable
from math import prod
from typing import Any

import ml_dtypes
import msgspec
import numpy as np

LENGTH_BYTES = 8
HEADER_BYTES_MAX = 100_000_000
"""The package safetensors reads no longer header."""
HEADER_MULTIPLE = 8
METADATA = "__metadata__"

Dtype = np.dtype[Any]

DTYPES: dict[str, Dtype] = {
    "BOOL": np.dtype(np.bool_),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "C64": np.dtype("<c8"),
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Tensor(msgspec.Struct, frozen=True):
    """What a header says of one tensor; offsets count from the header's end."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def start_of_file(metadata: object, tensors: Iterable[tuple[str, Dtype, tuple[int, ...]]]) -> bytes:
    """Return what stands before the tensors, which are given by name, type and shape."""
    header: dict[str, object] = {METADATA: metadata}
    end = 0
    for name, dtype, shape in tensors:
        first, end = end, end + prod(shape) * dtype.itemsize
        header[name] = Tensor(DTYPE_NAMES[dtype], shape, (first, end))
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % HEADER_MULTIPLE)
    return len(encoded).to_bytes(LENGTH_BYTES, "little") + encoded


def tensors_bytes(tensors: Iterable[Tensor]) -> int | None:
    """Return the bytes of all tensors; None if they do not lie one behind the other."""
    end = 0
    for tensor in tensors:
        dtype = DTYPES.get(tensor.dtype)
        if dtype is None or any(length < 0 for length in tensor.shape):
            return None
        first, end = end, end + prod(tensor.shape) * dtype.itemsize
        if tensor.data_offsets != (first, end):
            return None
    return end
