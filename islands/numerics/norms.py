"""Measure the norms of a contribution and whether it is finite, once, when it arrives."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics.types import Flat, FlatBFloat16, UnitNorms
from islands.protocol.errors import InvariantError

# Shapes are checked under test (jaxtyping).


@dataclass(frozen=True, slots=True)
class Measured:
    """A contribution in float32, contiguous and aligned, with its Euclidean norms.

    The merge needs those of its units again. The norm of all of it is nan or inf exactly when an
    element is.
    """

    values: Flat
    unit_norms: UnitNorms
    norm: float

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.norm))


def measure(values: Flat | FlatBFloat16, units: Sequence[Unit]) -> Measured:
    """Compute the norms of a contribution and of its units, in one pass at the speed of memory.

    Sums of squares accumulate in float32 within blocks of 4096 and in float64 across them, so the
    relative error is below 1e-6; blocks in which float32 would over- or underflow are summed in
    float64. A sum of squares is finite exactly when all elements are, so no second pass is needed.
    bfloat16 is widened first (exactly); contiguous, aligned float32 is not copied.
    """
    from islands.numerics import merge_kernel

    wide = np.require(values, np.float32, ["C", "A"])
    table = unit_table(units, wide.size)
    norms = np.zeros(len(table))
    merge_kernel.measure(wide.ctypes.data, table, norms)
    largest = float(norms.max(initial=0.0))
    if not np.isfinite(largest) or largest == 0:
        return Measured(wide, norms, largest)
    return Measured(wide, norms, largest * float(np.sqrt(np.sum((norms / largest) ** 2))))


def clip(measured: Measured, norm_limit: float) -> Measured:
    """Scale a contribution down to a norm > 0, if it is longer: x · min(1, limit / ‖x‖).

    Reference:
        protocol §6: a norm above the limit is clipped, and never refused.
    """
    if not measured.finite:
        raise InvariantError("a contribution that is not finite cannot be clipped; refuse it")
    if measured.norm <= norm_limit:
        return measured
    factor = norm_limit / measured.norm
    scaled = measured.values * np.float32(factor)
    return Measured(scaled, measured.unit_norms * factor, norm_limit)


def unit_table(units: Sequence[Unit], size: int) -> NDArray[np.int64]:
    """Return units as rows of (offset, size, index of the rule), int64, for the compiled loops.

    Units that are not in order, overlap or leave gaps belong to another layout than the data.
    """
    from islands.numerics import merge_kernel

    end = 0
    for unit in units:
        if unit.offset != end or unit.size < 1:
            raise InvariantError(f"merge unit at {unit.offset} follows one that ends at {end}")
        end += unit.size
    if end != size:
        raise InvariantError(f"merge units cover {end} elements of a fragment of {size}")
    rows = [(unit.offset, unit.size, merge_kernel.RULES.index(unit.rule)) for unit in units]
    return np.array(rows, np.int64).reshape(-1, 3)
