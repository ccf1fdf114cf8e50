"""Shapes and dtypes of this package, as jaxtyping annotations.

Under test they are checked at run time, and equal letters must be equal lengths within one call:
`n` elements of a fragment, `m` contributions, `u` units. Elsewhere they cost nothing.
"""

import ml_dtypes
import numpy as np
from jaxtyping import BFloat16, Float32, Float64, UInt8
from numpy.typing import NDArray

Flat = Float32[NDArray[np.float32], "n"]
"""A flat array as long as a fragment: value, momentum, contribution or direction."""

FlatBFloat16 = BFloat16[NDArray[ml_dtypes.bfloat16], "n"]
"""A contribution as it travels in bfloat16."""

UnitNorms = Float64[NDArray[np.float64], "u"]
"""One Euclidean norm per unit of a fragment."""

Bytes = UInt8[NDArray[np.uint8], "size_bytes"]
"""An encoded contribution."""
