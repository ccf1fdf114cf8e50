"""The merge combines contributions into one direction, and applies it as one outer step.

Directional units are merged by radial-directional averaging (RDA), all others by the weighted
average (`islands.layout.leaves.Unit` says which). With weights w, contributions δ and φ(x) = x/‖x‖,
φ(0) = 0::

    average = Σ wδ / Σ w
    RDA     = r · φ(Σ w φ(δ) / Σ w),   r = min(Σ w‖δ‖ / Σ w,  √M_eff · ‖average‖)
    √M_eff  = Σ w / √(Σ w²)

The average of M directions that disagree is shorter than any of them (by √M if they are
orthogonal); RDA averages lengths and directions apart, so disagreement does not shrink the step.

Reference:
    Decoupled DiLoCo (arXiv 2604.21428), radial-directional averaging; protocol §3.6.

Deviation (ours, not the paper's):
    The length is capped at √M_eff times the average's: where directions nearly cancel, the uncapped
    rule takes a step of full length in a random direction; tensors of one element then grew up to
    12,000-fold. √M_eff is what orthogonal contributions lose, and is given back fully. Tensors
    under 64 elements are averaged (by their unit's rule). The merge of one contribution is that
    contribution, without a division. Directions that cancel to less than 1e-6 of their length count
    as zero, and so do contributions whose norm in a unit is below the smallest normal float32.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics.norms import Measured, measure, unit_table
from islands.numerics.types import Flat
from islands.protocol.errors import InvariantError

# Shapes are checked under test (jaxtyping).


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of a merge and its outer step.

    Attributes:
        value: Θ_new, the next published value.
        momentum: v_new, the outer momentum after the step.
        norms: Euclidean norm of each contribution, in the order given.
        direction_norm: ‖Δ‖ of the merged direction.
        cosine_to_previous: Cosine between Δ and the momentum before the step; 0 if either is 0.
    """

    value: Flat
    momentum: Flat
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
) -> MergeResult:
    """Merge contributions and take one outer step of SGD with (Nesterov) momentum.

    ::

        Δ     = merge of the contributions, as in the module's docstring
        v_new = μv + Δ
        Θ_new = Θ − η(Δ + μv_new)      with nesterov, else  Θ − ηv_new

    From rest (v = 0) the first Nesterov step is η(1 + μ)Δ. Everything accumulates in float32, in
    the order of the contributions: sort them by name and a run repeats to the bit. The call
    releases the GIL, so it may run in a worker thread beside an event loop.

    Args:
        value: Θ; not modified.
        momentum: v; not modified unless given in `out` too.
        contributions: Finite contributions. Those that were measured already (`check.measure`,
            with the same units) are not measured again.
        weights: One per contribution, finite, ≥ 0, not all 0; only their ratios matter.
        units: The fragment's merge units, covering it in order.
        learning_rate: η, dimensionless.
        momentum_decay: μ, kept share of the momentum per merge.
        nesterov: Whether to look ahead along the momentum.
        out: Buffers for Θ_new and v_new instead of new arrays (which cost page faults). The second
            may be `momentum` itself, which is fastest; the first must not overlap any input.

    Returns:
        The new value and momentum, and the figures that the tape records.

    Raises:
        InvariantError: Lengths, dtypes, weights or buffers do not fit together: a bug of the
            caller, which must check data from outside first.

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
        _addresses([before, velocity, target, moved]),
        *_in_fours(measured, weights),
        unit_table(units, before.size),
        np.array([learning_rate, momentum_decay, nesterov], np.float32),
        totals,
    )
    return MergeResult(
        value=target,
        momentum=moved,
        norms=tuple(one.norm for one in measured),
        direction_norm=math.sqrt(totals[merge_kernel.DIRECTION_SQUARES]),
        cosine_to_previous=_cosine(*totals.tolist()),
    )


def combine(
    contributions: Sequence[Flat | Measured],
    weights: Sequence[float],
    units: Sequence[Unit],
) -> Flat:
    """Compute the merged direction alone; any outer optimizer may follow.

    Args:
        contributions: See `merge_and_step`.
        weights: See `merge_and_step`.
        units: See `merge_and_step`.

    Returns:
        Δ of `merge_and_step`, float32; a single contribution comes back bit for bit.

    Raises:
        InvariantError: See `merge_and_step`.
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


def averaged(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return the same units, all merged by the weighted average (setting `merge: average`)."""
    return tuple(replace(unit, rule="average") for unit in units)


def warm_up() -> None:
    """Load or compile the loops, so that the first merge of a run does not stall.

    Compiling takes about six seconds on one core, once per installation; loading from the cache
    takes a third of a second. Call it from a worker thread while learners compile their own step.
    """
    units = (Unit(0, 64, "rda"), Unit(64, 1, "average"))
    ones = np.ones(65, np.float32)
    combine([ones, ones], [1.0, 1.0], units)
    merge_and_step(
        ones, ones, [ones, ones], [1.0, 1.0], units, learning_rate=0.0, momentum_decay=0.0
    )


def _measured(
    contributions: Sequence[Flat | Measured], units: Sequence[Unit], size: int | None
) -> list[Measured]:
    """Measure unmeasured contributions, and check that all have one length (`size` if given).

    Raises:
        InvariantError: There are none, or they differ in length or in units.
    """
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

    Raises:
        InvariantError: There is not one weight per contribution, or one is negative or not finite,
            or all are 0.
    """
    scale = max(weights, default=0)
    count = len(measured)
    if len(weights) != count or not np.isfinite(weights).all() or min(weights) < 0 or not scale:
        raise InvariantError(f"weights {list(weights)} do not fit {count} contributions")
    filled = count if count == 1 else -(-count // 4) * 4
    addresses = np.full(filled, measured[0].values.ctypes.data, np.int64)
    shares = np.zeros(filled)
    norms = np.zeros((filled, measured[0].unit_norms.size))
    for place, (one, weight) in enumerate(zip(measured, weights, strict=True)):
        addresses[place] = one.values.ctypes.data
        shares[place] = weight / scale
        norms[place] = one.unit_norms
    return addresses, shares, norms


def _check_buffers(outputs: Sequence[Flat], inputs: Sequence[Flat]) -> None:
    """Assert that results can be written without overwriting data that is still to be read.

    Raises:
        InvariantError: An array has the wrong length, or an output has the wrong kind or overlaps
            another array.
    """
    size = inputs[0].size
    if any(array.size != size for array in (*outputs, *inputs)):
        raise InvariantError(f"a merge of {size} elements was given an array of another length")
    for place, output in enumerate(outputs):
        flags = output.flags
        if output.dtype != np.float32 or not (flags.carray and flags.aligned):
            raise InvariantError("merge buffers are contiguous, writeable float32")
        if any(np.may_share_memory(output, other) for other in (*outputs[:place], *inputs)):
            raise InvariantError("a merge buffer lies on top of another array")


def _addresses(arrays: Sequence[Flat]) -> NDArray[np.int64]:
    return np.array([array.ctypes.data for array in arrays], np.int64)


def _cosine(direction_squares: float, dot: float, momentum_squares: float) -> float:
    lengths = math.sqrt(direction_squares) * math.sqrt(momentum_squares)
    return max(-1.0, min(1.0, dot / lengths)) if lengths else 0.0
