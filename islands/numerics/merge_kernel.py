"""The compiled loops of the merge: measure, combine, step. `islands.numerics.merge` calls them.

**Passes.** Memory traffic dominates the cost of a merge, so each unit is read as seldom as
possible, in blocks that stay in the nearest cache:

1. `measure`, when a contribution arrives, computes its norm per unit (and so whether it is finite).
2. `_direction` reads all contributions once and writes the unscaled direction D where the new value
   will stand; it also sums the length of D, and whatever else the scale needs.
3. `_step` reads D, the old value and the momentum once, and writes the new value over D.

An averaged unit needs no scale, so 2 and 3 follow each other within a block and D never leaves the
cache. All other units are stepped last block first: the end of D is still in a cache then.

**Rules.** `RULES` has them, and `_direction` chooses. All of them, and whoever calls them, are in
this file, because a cached loop is compiled anew only if its own file has changed.

**Repeatable.** The loops use one thread and a fixed order. Element-wise loops are compiled to the
letter (no fused multiply-add), so they give the same bits everywhere. Sums of squares may be
reordered to use vector registers: within a block in float32, across blocks in float64. They are the
same from run to run on one kind of processor; on another they may differ in the last bits.

**Addresses.** Arrays are passed as integers, because a read-only array, or one more contribution,
would otherwise be another type and compile for seconds in the middle of a run. Callers keep the
arrays alive, contiguous, float32 and aligned. Contributions come alone or in fours: a single one is
the merge itself; more are padded to a multiple of four by repeating one with weight and norm 0.
"""

import math
from collections.abc import Callable
from typing import cast

import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from islands.numerics.compiler import Compiler, compiled
from islands.protocol.settings.choices import MergeRule

FloatArray = NDArray[np.float32]
DoubleArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BLOCK = 4096  # elements; 16 KiB of each array
_SQUARES_MIN, _SQUARES_MAX = 1e-30, 1e37  # of a block, in float32; outside, squares lose digits
_DIRECTION_MIN = 1e-6  # below it, D is what rounding left of directions that cancel
_NORM_MIN = 1.2e-38  # below it, a norm has no inverse in float32

# Columns of `units`; entries of `buffers` (addresses), `settings` and `totals`.
OFFSET, SIZE, RULE = range(3)
VALUE, MOMENTUM, VALUE_OUT, MOMENTUM_OUT = range(4)
LEARNING_RATE, DECAY, NESTEROV = range(3)
DIRECTION_SQUARES, DIRECTION_DOT_MOMENTUM, MOMENTUM_SQUARES = range(3)

RULES = (MergeRule.AVERAGE, MergeRule.RADIAL_DIRECTIONAL)
"""The rules, each by its number in `units`."""
AVERAGE, RADIAL_DIRECTIONAL = range(2)


_exact = compiled()
_reordered = compiled(reordered=True)


def _pointer(_: Compiler, address: Compiler) -> tuple[Compiler, Compiler]:
    """Convert an integer to a pointer to float32: return the signature and the code generator."""
    compiler: Compiler = types
    signature = compiler.CPointer(compiler.float32)(address)

    def generate(
        context: Compiler, builder: Compiler, _: Compiler, arguments: Compiler
    ) -> Compiler:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate


_as_pointer = cast("Callable[[int], object]", intrinsic(_pointer))
_as_array = cast("Callable[[object, tuple[int]], FloatArray]", carray)


@_exact
def _view(address: int, start: int, size: int) -> FloatArray:
    """View elements `start` to `start + size` of the float32 array at an address."""
    return _as_array(_as_pointer(address + 4 * start), (size,))


# --- sums -------------------------------------------------------------------------------------


@_reordered
def _dot(x: FloatArray, y: FloatArray) -> np.float32:
    """Return Σ xy of one block."""
    total = np.float32(0)
    for k in range(x.size):
        total += x[k] * y[k]
    return total


@_reordered
def _two_dots(x: FloatArray, y: FloatArray) -> tuple[np.float32, np.float32]:
    """Return Σ xy and Σ yy of one block."""
    xy = np.float32(0)
    yy = np.float32(0)
    for k in range(x.size):
        xy += x[k] * y[k]
        yy += y[k] * y[k]
    return xy, yy


@_reordered
def _careful_squares(x: FloatArray) -> float:
    """Return Σ x² of a block where float32 over- or underflows; nan or inf if an element is."""
    total = 0.0
    for k in range(x.size):
        total += np.float64(x[k]) * np.float64(x[k])
    return total


@_exact
def measure(contribution: int, units: IntArray, norms: DoubleArray) -> None:
    """Write ‖x‖ of each unit into `norms`; nan or inf where an element is not finite."""
    for u in range(units.shape[0]):
        total = 0.0
        stop = units[u, OFFSET] + units[u, SIZE]
        for start in range(units[u, OFFSET], stop, BLOCK):
            x = _view(contribution, start, min(BLOCK, stop - start))
            squares = float(_dot(x, x))
            if not _SQUARES_MIN < squares < _SQUARES_MAX:
                squares = _careful_squares(x)
            total += squares
        norms[u] = math.sqrt(total)


# --- combine ----------------------------------------------------------------------------------


@_exact
def _mix(
    d: FloatArray,
    a: FloatArray,
    contributions: IntArray,
    start: int,
    towards: FloatArray,
    plainly: FloatArray,
) -> None:
    """Write one block of D = Σ towards · x and of A = Σ plainly · x, summed in the order given."""
    size = d.size
    for i in range(0, contributions.size, 4):
        w = _view(contributions[i], start, size)
        x = _view(contributions[i + 1], start, size)
        y = _view(contributions[i + 2], start, size)
        z = _view(contributions[i + 3], start, size)
        p, q, r, s = towards[i], towards[i + 1], towards[i + 2], towards[i + 3]
        e, f, g, h = plainly[i], plainly[i + 1], plainly[i + 2], plainly[i + 3]
        if i == 0:
            for k in range(size):
                d[k] = p * w[k] + q * x[k] + r * y[k] + s * z[k]
                a[k] = e * w[k] + f * x[k] + g * y[k] + h * z[k]
        else:
            for k in range(size):
                d[k] = d[k] + p * w[k] + q * x[k] + r * y[k] + s * z[k]
                a[k] = a[k] + e * w[k] + f * x[k] + g * y[k] + h * z[k]


@_exact
def _sum(d: FloatArray, contributions: IntArray, start: int, shares: FloatArray) -> None:
    """Write one block of D = Σ shares · x alone, to the same bits as `_mix` does."""
    size = d.size
    for i in range(0, contributions.size, 4):
        w = _view(contributions[i], start, size)
        x = _view(contributions[i + 1], start, size)
        y = _view(contributions[i + 2], start, size)
        z = _view(contributions[i + 3], start, size)
        p, q, r, s = shares[i], shares[i + 1], shares[i + 2], shares[i + 3]
        if i == 0:
            for k in range(size):
                d[k] = p * w[k] + q * x[k] + r * y[k] + s * z[k]
        else:
            for k in range(size):
                d[k] = d[k] + p * w[k] + q * x[k] + r * y[k] + s * z[k]


@_exact
def _average(
    out: int, contributions: IntArray, weights: DoubleArray, start: int, size: int
) -> None:
    """Write Σ wx / Σ w of at most one block; a single contribution is copied as it is."""
    target = _view(out, start, size)
    if contributions.size == 1:
        target[:] = _view(contributions[0], start, size)
    else:
        shares = (weights / weights.sum()).astype(np.float32)
        _sum(target, contributions, start, shares)


@_exact
def _radial_directional(
    out: int,
    contributions: IntArray,
    weights: DoubleArray,
    norms: DoubleArray,
    start: int,
    size: int,
) -> tuple[float, float]:
    """Average lengths and directions apart, so that disagreement does not shrink the step.

    With weights w, contributions x and φ(x) = x/‖x‖, φ(0) = 0::

        D     = Σ w φ(x) / Σ w
        merge = r · φ(D),   r = min(Σ w‖x‖ / Σ w,  √M_eff · ‖Σ wx / Σ w‖),   √M_eff = Σ w / √(Σ w²)

    Reference:
        Decoupled DiLoCo (arXiv 2604.21428), radial-directional averaging (RDA).

    Deviation (ours, not the paper's):
        The length is capped at √M_eff times the average's: where directions nearly cancel, the
        uncapped rule takes a step of full length in a random direction; tensors of one element then
        grew up to 12,000-fold. √M_eff is what orthogonal contributions lose, and is given back
        fully. Tensors under 64 elements are averaged (`islands.layout.leaves`). Directions that
        cancel to less than 1e-6 of their length count as zero, and so do contributions whose norm
        in a unit is below the smallest normal float32.
    """
    shares = weights / weights.sum()
    largest = norms.max()
    towards = np.zeros(weights.size, np.float32)
    plainly = np.zeros(weights.size, np.float32)
    for i in range(weights.size):
        if norms[i] > _NORM_MIN:
            towards[i] = shares[i] / norms[i]
            plainly[i] = shares[i] / largest
    squares = 0.0
    average_squares = 0.0
    scratch = np.empty(min(BLOCK, size), np.float32)
    for block in range(start, start + size, BLOCK):
        length = min(BLOCK, start + size - block)
        target = _view(out, block, length)
        average = scratch[:length]
        _mix(target, average, contributions, block, towards, plainly)
        squares += float(_dot(target, target))
        average_squares += float(_dot(average, average))
    if squares <= _DIRECTION_MIN**2:
        return 0.0, squares
    radius = (shares * norms).sum()
    cap = math.sqrt(average_squares / (shares * shares).sum()) * largest
    return min(radius, cap) / math.sqrt(squares), squares


@_exact
def _direction(
    rule: int,
    out: int,
    contributions: IntArray,
    weights: DoubleArray,
    norms: DoubleArray,
    start: int,
    size: int,
) -> tuple[float, float]:
    """Write the direction D of a unit that is not averaged; return its scale, and Σ D²."""
    assert rule == RADIAL_DIRECTIONAL
    return _radial_directional(out, contributions, weights, norms, start, size)


@_exact
def combine(
    out: int,
    contributions: IntArray,
    weights: DoubleArray,
    norms: DoubleArray,
    units: IntArray,
) -> None:
    """Write the merged direction of all units; `norms` has a row per contribution."""
    for u in range(units.shape[0]):
        start, size = units[u, OFFSET], units[u, SIZE]
        rule = units[u, RULE]
        if rule != AVERAGE and contributions.size > 1:
            scale, _ = _direction(rule, out, contributions, weights, norms[:, u], start, size)
            target = _view(out, start, size)
            factor = np.float32(scale)
            for k in range(size):
                target[k] *= factor
        else:
            for block in range(start, start + size, BLOCK):
                length = min(BLOCK, start + size - block)
                _average(out, contributions, weights, block, length)


# --- step -------------------------------------------------------------------------------------


@_exact
def _step(
    buffers: IntArray,
    start: int,
    size: int,
    scale: float,
    settings: FloatArray,
    totals: DoubleArray,
) -> None:
    """Step one block: v ← μv + Δ; Θ ← Θ − η(Δ + μv), Δ = scale · D, D where Θ will stand."""
    value = _view(buffers[VALUE], start, size)
    direction = _view(buffers[VALUE_OUT], start, size)
    momentum = _view(buffers[MOMENTUM_OUT], start, size)
    if buffers[MOMENTUM_OUT] != buffers[MOMENTUM]:
        momentum[:] = _view(buffers[MOMENTUM], start, size)
    dot, squares = _two_dots(direction, momentum)
    totals[DIRECTION_DOT_MOMENTUM] += scale * dot
    totals[MOMENTUM_SQUARES] += squares
    factor, rate, decay = np.float32(scale), settings[LEARNING_RATE], settings[DECAY]
    if settings[NESTEROV] > 0:
        for k in range(size):
            delta = factor * direction[k]
            moved = decay * momentum[k] + delta
            momentum[k] = moved
            direction[k] = value[k] - rate * (delta + decay * moved)
    else:
        for k in range(size):
            moved = decay * momentum[k] + factor * direction[k]
            momentum[k] = moved
            direction[k] = value[k] - rate * moved


@_exact
def merge_and_step(
    buffers: IntArray,
    contributions: IntArray,
    weights: DoubleArray,
    norms: DoubleArray,
    units: IntArray,
    settings: FloatArray,
    totals: DoubleArray,
) -> None:
    """Merge all units and take the outer step; add the sums that the tape needs to `totals`."""
    out = buffers[VALUE_OUT]
    for u in range(units.shape[0]):
        start, size = units[u, OFFSET], units[u, SIZE]
        blocks = -(-size // BLOCK)
        rule = units[u, RULE]
        if rule != AVERAGE and contributions.size > 1:
            scale, squares = _direction(rule, out, contributions, weights, norms[:, u], start, size)
            totals[DIRECTION_SQUARES] += scale * scale * squares
            for block in range(blocks - 1, -1, -1):
                first = start + block * BLOCK
                _step(buffers, first, min(BLOCK, start + size - first), scale, settings, totals)
        else:
            for block in range(blocks):
                first = start + block * BLOCK
                length = min(BLOCK, start + size - first)
                _average(out, contributions, weights, first, length)
                target = _view(out, first, length)
                totals[DIRECTION_SQUARES] += _dot(target, target)
                _step(buffers, first, length, 1.0, settings, totals)
