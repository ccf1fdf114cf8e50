"""The elements of a flat value that each process of a learner holds.

A flat value is cut evenly over a learner's devices, in their order, and padded at its end where it
does not divide. A process holds the elements on its own devices: one range for each run of
neighbouring devices. As an array these are one after the other, without padding.
"""

from collections.abc import Iterable, Sequence

Ranges = tuple[tuple[int, int], ...]
"""Ranges (start, stop) of elements of a flat value, ascending, none empty and no two adjacent."""


def held_by(process: int, owners: Sequence[int], size: int) -> Ranges:
    """Return the elements of a flat value that lie on the devices of a process.

    `owners` has the process of each device, in the order in which the value is cut; `size` is the
    number of the value's elements, without padding.
    """
    each = -(-size // len(owners))
    merged: list[tuple[int, int]] = []
    for number, owner in enumerate(owners):
        start, stop = number * each, min((number + 1) * each, size)
        if owner != process or start >= stop:
            continue
        if merged and merged[-1][1] == start:
            start = merged.pop()[0]
        merged.append((start, stop))
    return tuple(merged)


def size_of(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in ranges)
