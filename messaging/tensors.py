"""Buffers of numbers: what they must look like, how to see them as arrays, and their digest.

The receiver knows the schema of every buffer from its own layout. Nothing is believed about a
buffer because the sender says so.
"""

import hashlib
import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from messaging.errors import LocalFault, SchemaError

DTYPES: dict[str, np.dtype[np.generic]] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int64": np.dtype(np.int64),
    "int32": np.dtype(np.int32),
    "int8": np.dtype(np.int8),
    "uint32": np.dtype(np.uint32),
    "uint8": np.dtype(np.uint8),
}
"""Element types that may travel, in little-endian order."""

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class TensorSchema:
    """Element type and shape of one buffer, row-major.

    Attributes:
        dtype: A key of `DTYPES`.
        shape: Length of each axis; `()` is a scalar.
    """

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse what no buffer can have.

        Raises:
            LocalFault: Unknown element type, or a negative length.
        """
        if self.dtype not in DTYPES:
            raise LocalFault(f"no element type {self.dtype!r}; known: {', '.join(DTYPES)}")
        if any(length < 0 for length in self.shape):
            raise LocalFault(f"a shape has no negative lengths: {self.shape}")

    @property
    def size_bytes(self) -> int:
        """Bytes that a buffer of this schema occupies."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def check(schema: TensorSchema, buffer: memoryview) -> None:
    """Refuse a buffer that cannot be of this schema.

    Raises:
        SchemaError: Its length differs, or it is not contiguous. Reject what it came with.
    """
    if buffer.nbytes != schema.size_bytes:
        raise SchemaError(
            f"a {schema.dtype} buffer of shape {schema.shape} has {schema.size_bytes} bytes, "
            f"not {buffer.nbytes}"
        )
    if not buffer.c_contiguous:
        raise SchemaError("a buffer must be contiguous and row-major")


def as_array(schema: TensorSchema, buffer: memoryview) -> NDArray[np.generic]:
    """View a buffer as an array of its schema; nothing is copied.

    The array is read-only if the buffer is.

    Raises:
        SchemaError: The buffer is not of this schema.
    """
    check(schema, buffer)
    return np.ndarray(schema.shape, DTYPES[schema.dtype], buffer)


def schema_of(array: NDArray[np.generic]) -> TensorSchema:
    """Return the schema of an array.

    Raises:
        LocalFault: Its element type does not travel.
    """
    return TensorSchema(array.dtype.name, array.shape)


def as_buffer(array: NDArray[np.generic]) -> memoryview:
    """View a contiguous array as read-only bytes; nothing is copied.

    Raises:
        LocalFault: The array is not contiguous and row-major.
    """
    if not array.flags.c_contiguous:
        raise LocalFault("only a contiguous, row-major array can be sent without a copy")
    return array.reshape(-1).view(np.uint8).data.toreadonly()


def digest(buffer: memoryview) -> str:
    """Return the BLAKE2b-128 digest of a buffer's bytes, in hexadecimal."""
    return hashlib.blake2b(buffer, digest_size=DIGEST_BYTES).hexdigest()
