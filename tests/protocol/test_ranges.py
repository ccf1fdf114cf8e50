"""Which elements of a flat value a process holds, whatever devices it has."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.ranges import held_by, size_of


def test_processes_with_devices_in_turn_hold_several_ranges() -> None:
    owners = [1, 0, 0, 1, 1, 0]
    assert held_by(0, owners, 12) == ((2, 6), (10, 12))
    assert held_by(1, owners, 12) == ((0, 2), (6, 10))
    assert held_by(0, owners, 11) == ((2, 6), (10, 11))
    assert held_by(0, owners, 10) == ((2, 6),)


def test_a_value_smaller_than_the_number_of_devices_is_held_by_the_first() -> None:
    owners = [0, 1, 0, 1, 2, 2]
    assert held_by(0, owners, 3) == ((0, 1), (2, 3))
    assert held_by(1, owners, 3) == ((1, 2),)
    assert held_by(2, owners, 3) == ()
    assert held_by(0, owners, 0) == ()


@given(owners=st.lists(st.integers(0, 3), min_size=1, max_size=12), size=st.integers(0, 40))
def test_every_element_is_held_once(owners: list[int], size: int) -> None:
    held: list[int] = []
    for process in range(4):
        ranges = held_by(process, owners, size)
        elements = [n for start, stop in ranges for n in range(start, stop)]
        assert size_of(ranges) == len(elements)
        assert all(start < stop for start, stop in ranges)
        assert all(end < start for (_, end), (start, _) in pairwise(ranges))
        each = max(1, -(-size // len(owners)))
        assert all(owners[n // each] == process for n in elements)
        held += elements
    assert sorted(held) == list(range(size))
