"""Which elements of a flat value a process holds, whatever devices it has."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.ranges import held_by, size_of


def test_one_process_holds_the_whole_value() -> None:
    assert held_by(0, [0], 7) == ((0, 7),)
    assert held_by(3, [3] * 8, 17) == ((0, 17),)


def test_processes_with_neighbouring_devices_hold_one_range_each() -> None:
    owners = [0, 0, 0, 0, 1, 1, 1, 1]
    assert held_by(0, owners, 16) == ((0, 8),)
    assert held_by(1, owners, 16) == ((8, 16),)
    assert held_by(1, owners, 13) == ((8, 13),)


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


def test_a_process_without_devices_holds_nothing() -> None:
    assert held_by(5, [0, 1], 8) == ()


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
