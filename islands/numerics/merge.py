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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics.norms import Measured, measure, unit_table
from islands.numerics.types import Flat
from islands.protocol.errors import InvariantError

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

        Δ     = merge of the contributions, as in the module's docstring
        v_new = μv + Δ
        Θ_new = Θ − η(Δ + μv_new)      with nesterov, else  Θ − ηv_new

    From rest (v = 0) the first Nesterov step is η(1 + μ)Δ. Everything accumulates in float32, in
    the order of the contributions: sort them by name and a run repeats to the bit. The call
    releases the GIL, so it may run in a worker thread beside an event loop.

    Contributions are finite; those that were measured already, with the same units, are not
    measured again. Weights are finite and ≥ 0, and only their ratios matter.

    Args:
        value: Θ; not modified.
        momentum: v; not modified unless given in `out` too.
        contributions: All of this merge, as values or measured.
        weights: One per contribution, not all 0.
        units: The fragment's merge units, covering it in order.
        learning_rate: η, dimensionless.
        momentum_decay: μ, the fraction of the momentum that a merge keeps.
        nesterov: Whether to look ahead along the momentum.
        out: Buffers for Θ_new and v_new instead of new arrays (which cost page faults). The second
            may be `momentum` itself, which is fastest; the first must not overlap any input.

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


def _addresses(arrays: Sequence[Flat]) -> NDArray[np.int64]:
    return np.array([array.ctypes.data for array in arrays], np.int64)


def _cosine(direction_squares: float, dot: float, momentum_squares: float) -> float:
    lengths = math.sqrt(direction_squares) * math.sqrt(momentum_squares)
    return max(-1.0, min(1.0, dot / lengths)) if lengths else 0.0
