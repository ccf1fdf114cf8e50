"""Merges for less trusted fleets: coordinate-wise trimmed mean and median, rescaled.

Of M contributions, each coordinate drops its d largest and d smallest values and takes the mean of
the others; the result of a unit is then rescaled::

    d = min(⌊(M − 1)/2⌋, max(1, ⌊trim · M⌋))
    T = mean of each coordinate's values of rank d + 1 … M − d
    Δ = T · min(median ‖δ‖, √M · ‖T‖) / ‖T‖

The median is the trimmed mean of share 0.5, of which one value is left (two, if M is even). Up to d
contributions of any content leave each coordinate of T between two honest values, and, as they are
less than half, the length between two honest lengths.

- One contribution is the merge, bit for bit. Of two, nothing can be dropped: T is their mean.
- Weights take no part: they are what a contributor says of itself. So every vote counts the same.
- All tensors are merged so, embeddings and small ones too: an average of any of them would be open
  to a single contributor. Rows of an embedding that most contributions do not move, such as those
  of rare tokens, therefore hardly move.
- Units that are not stepped (running averages) are not rescaled: their T is what is published.

Reference:
    Yin et al., Byzantine-Robust Distributed Learning (arXiv 1803.01498), definitions 1 and 2;
    protocol §6 rescales them to the median norm.

Deviation (ours):
    The length is limited to √M times that of T, for the reason for which RDA is limited
    (`islands.numerics.merge`): where contributions cancel, T is a small rest of random direction.
    At least one value is dropped per side from three contributions on, whatever the share.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics.norms import Measured
from islands.numerics.types import Flat
from islands.protocol.errors import InvariantError

# Shapes are checked under test (jaxtyping).

MEDIAN = 0.5
"""The share that drops all but the middle: the trimmed mean becomes the median."""

BLOCK = 4096
"""Elements of each contribution that are sorted at once, as long as those of all are few enough."""

SORTED_MOST = 2**22
"""Elements of all contributions that are sorted at once, at most: 16 MiB."""

NETWORK_MOST = 64
"""Up to so many contributions are sorted by a network, whose steps compare whole rows at once."""


def dropped_per_side(count: int, trim: float) -> int:
    """Return d: how many of so many values are dropped at either end.

    Args:
        count: M, ≥ 1.
        trim: Share dropped at either end, above 0 and at most `MEDIAN`.
    """
    return min((count - 1) // 2, max(1, math.floor(trim * count + 1e-9)))


def combine_trimmed(contributions: Sequence[Measured], units: Sequence[Unit], trim: float) -> Flat:
    """Merge contributions by trimmed mean, as in the module's docstring; `MEDIAN` is the median.

    Values are summed in float64 in the order of their size, so the order of the contributions does
    not change a bit. Besides the result no array is larger than `SORTED_MOST`, or than one value of
    each contribution.

    Args:
        contributions: Finite contributions of one length, measured with these units.
        units: The fragment's merge units, covering it in order.
        trim: Share of the contributions that is dropped at either end.

    Returns:
        Δ, float32; the array of a single contribution itself.

    Raises:
        InvariantError: There are no contributions, or they differ in length or in units.
    """
    if len({(one.values.size, one.unit_norms.size) for one in contributions}) != 1:
        raise InvariantError("a merge needs contributions, all of one length and of the same units")
    if len(contributions) == 1:
        return contributions[0].values
    merged = np.empty_like(contributions[0].values)
    for place, unit in enumerate(units):
        length = _trim_unit(merged, contributions, unit, dropped_per_side(len(contributions), trim))
        if unit.stepped and length > 0:
            usual = float(np.median([one.unit_norms[place] for one in contributions]))
            scale = min(usual / length, math.sqrt(len(contributions)))
            merged[unit.offset : unit.offset + unit.size] *= np.float32(scale)
    return merged


def _trim_unit(merged: Flat, contributions: Sequence[Measured], unit: Unit, dropped: int) -> float:
    """Write T of one unit into `merged`; return ‖T‖."""
    count = len(contributions)
    block = max(1, min(BLOCK, SORTED_MOST // count))
    squares = 0.0
    for start in range(unit.offset, unit.offset + unit.size, block):
        where = slice(start, min(start + block, unit.offset + unit.size))
        values = np.stack([one.values[where] for one in contributions])
        _sort(values)
        mean = values[dropped : count - dropped].mean(axis=0, dtype=np.float64)
        merged[where] = mean
        squares += float(mean @ mean)
    return math.sqrt(squares)


def _sort(values: NDArray[np.float32]) -> None:
    """Sort each column; a row holds a block of one contribution."""
    if len(values) > NETWORK_MOST:
        values.sort(axis=0)
        return
    lower = np.empty_like(values[0])
    for one, other in _network(len(values)):
        np.minimum(values[one], values[other], out=lower)
        np.maximum(values[one], values[other], out=values[other])
        values[one] = lower


@cache
def _network(count: int) -> tuple[tuple[int, int], ...]:
    """Return the comparisons that sort so many values: Batcher's merge exchange.

    Reference:
        Knuth, The Art of Computer Programming, volume 3, section 5.2.2, algorithm M.
    """
    return tuple(_exchanges(count))


def _exchanges(count: int) -> Iterator[tuple[int, int]]:
    top = 1 << (count - 1).bit_length() >> 1
    p = top
    while p:
        q, r, distance = top, 0, p
        while True:
            for place in range(count - distance):
                if place & p == r:
                    yield place, place + distance
            if q == p:
                break
            distance, q, r = q - p, q >> 1, p
        p >>= 1
