"""The merge combines contributions into one direction, and applies it as one outer step.

Each unit is merged by a rule (`islands.numerics.merge_kernel` has them, and their loops). The merge
of one contribution is that contribution, without a division.

Reference:
    Decoupled DiLoCo (arXiv 2604.21428); protocol §3.6.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics.norms import Measured, measure, unit_table
from islands.numerics.types import Flat
from islands.protocol.errors import InvariantError
from islands.protocol.settings.choices import MergeRule

# Shapes are checked under test (jaxtyping).


OuterState = Mapping[str, NDArray[np.generic]]
"""What an outer optimizer keeps of a fragment, as named arrays."""


@dataclass(frozen=True, slots=True)
class OuterStep:
    """The result of a merge and its outer step, before it has a version number.

    Attributes:
        value: Θ_new, the next published value.
        state: The optimizer's next state.
        norms: Euclidean norm of each contribution, in the order given.
        direction_norm: ‖Δ‖ of the merged direction.
        cosine_to_previous: Cosine between Δ and the momentum before the step; 0 if either is 0, or
            without a momentum.
    """

    value: Flat
    state: OuterState
    norms: tuple[float, ...]
    direction_norm: float
    cosine_to_previous: float


def merge_and_step(
    value: Flat,
    momentum: Flat,
    contributions: Sequence[Flat | Measured],
    weights: Sequence[float],
    units: Sequence[Unit],
    *,
    learning_rate: float,
    momentum_decay: float,
    nesterov: bool = True,
    out: tuple[Flat, Flat] | None = None,
) -> OuterStep:
    """Merge contributions and take one outer step of SGD with (Nesterov) momentum.

    ::

        Δ     = merge of the contributions, each unit by its rule
        v_new = μv + Δ
        Θ_new = Θ − η(Δ + μv_new)      with nesterov, else  Θ − ηv_new

    From rest (v = 0) the first Nesterov step is η(1 + μ)Δ. Everything accumulates in float32, in
    the order of the contributions: sort them by name and a run repeats to the bit. The call
    releases the GIL, so it may run in a worker thread beside an event loop.

    Contributions are finite; those that were measured already, with the same units, are not
    measured again. Weights are finite and ≥ 0, one per contribution and not all 0, and only their
    ratios matter. Units cover the fragment in order. η and μ are dimensionless.

    `out` are buffers for Θ_new and v_new instead of new arrays (which cost page faults). The second
    may be `momentum` itself, which is fastest; the first must not overlap any input. Nothing else
    is modified.

    Reference:
        Outer Nesterov momentum: DiLoCo (arXiv 2311.08105), algorithm 1.
    """
    from islands.numerics import merge_kernel

    measured = _measured(contributions, units, value.size)
    sources = [one.values for one in measured]
    before, velocity = (np.require(array, np.float32, ["C", "A"]) for array in (value, momentum))
    target, moved = out if out is not None else (np.empty_like(before), np.empty_like(before))
    in_place = moved.ctypes.data == velocity.ctypes.data and moved.size == velocity.size
    _check_buffers([target, moved], [before, *sources, *([] if in_place else [velocity])])
    totals = np.zeros(3)
    merge_kernel.merge_and_step(
        np.array([array.ctypes.data for array in (before, velocity, target, moved)], np.int64),
        *_in_fours(measured, weights),
        unit_table(units, before.size),
        np.array([learning_rate, momentum_decay, nesterov], np.float32),
        totals,
    )
    return OuterStep(
        value=target,
        state={"momentum": moved},
        norms=tuple(one.norm for one in measured),
        direction_norm=math.sqrt(totals[merge_kernel.DIRECTION_SQUARES]),
        cosine_to_previous=_cosine(*totals.tolist()),
    )


def combine(
    contributions: Sequence[Flat | Measured],
    weights: Sequence[float],
    units: Sequence[Unit],
) -> Flat:
    """Compute Δ of `merge_and_step` alone, float32, under the same conditions.

    Any outer optimizer may follow. A single contribution comes back bit for bit.
    """
    from islands.numerics import merge_kernel

    measured = _measured(contributions, units, None)
    sources = [one.values for one in measured]
    target = np.empty_like(sources[0])
    merge_kernel.combine(
        target.ctypes.data,
        *_in_fours(measured, weights),
        unit_table(units, target.size),
    )
    return target


def warm_up() -> None:
    """Load or compile the loops, so that the first merge of a run does not stall.

    Compiling takes about six seconds on one core, once per installation; loading from the cache
    takes a third of a second. Call it from a worker thread while learners compile their own step.
    """
    units = [Unit(index, 1, rule) for index, rule in enumerate(MergeRule)]
    ones = np.ones(len(units), np.float32)
    combine([ones, ones], [1.0, 1.0], units)
    merge_and_step(
        ones, ones, [ones, ones], [1.0, 1.0], units, learning_rate=0.0, momentum_decay=0.0
    )


def _measured(
    contributions: Sequence[Flat | Measured], units: Sequence[Unit], size: int | None
) -> list[Measured]:
    """Measure unmeasured contributions, and check that all have one length (`size` if given)."""
    measured = [one if isinstance(one, Measured) else measure(one, units) for one in contributions]
    if not measured:
        raise InvariantError("a merge needs at least one contribution")
    wanted = (measured[0].values.size if size is None else size, len(units))
    for one in measured:
        if (one.values.size, one.unit_norms.size) != wanted:
            message = f"a contribution of {one.values.size} elements in {one.unit_norms.size} units"
            raise InvariantError(f"{message} met others of {wanted[0]} in {wanted[1]}")
    return measured


def _in_fours(
    measured: Sequence[Measured], weights: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return addresses, weights and norms as the compiled loops want them: one alone, or in fours.

    Weights are fractions of the largest.
    """
    scale = max(weights, default=0)
    count = len(measured)
    if len(weights) != count or not np.isfinite(weights).all() or min(weights) < 0 or not scale:
        raise InvariantError(f"weights {list(weights)} do not fit {count} contributions")
    filled = count if count == 1 else -(-count // 4) * 4
    addresses = np.full(filled, measured[0].values.ctypes.data, np.int64)
    scaled = np.zeros(filled)
    norms = np.zeros((filled, measured[0].unit_norms.size))
    for index, (one, weight) in enumerate(zip(measured, weights, strict=True)):
        addresses[index] = one.values.ctypes.data
        scaled[index] = weight / scale
        norms[index] = one.unit_norms
    return addresses, scaled, norms


def _check_buffers(outputs: Sequence[Flat], inputs: Sequence[Flat]) -> None:
    """Assert that results can be written without overwriting data that is still to be read."""
    size = inputs[0].size
    if any(array.size != size for array in (*outputs, *inputs)):
        raise InvariantError(f"a merge of {size} elements was given an array of another length")
    for index, output in enumerate(outputs):
        flags = output.flags
        if output.dtype != np.float32 or not (flags.carray and flags.aligned):
            raise InvariantError("merge buffers are contiguous, writeable float32")
        if any(np.may_share_memory(output, other) for other in (*outputs[:index], *inputs)):
            raise InvariantError("a merge buffer lies on top of another array")


def _cosine(direction_squares: float, dot: float, momentum_squares: float) -> float:
    lengths = math.sqrt(direction_squares) * math.sqrt(momentum_squares)
    return max(-1.0, min(1.0, dot / lengths)) if lengths else 0.0
