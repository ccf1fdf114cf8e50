"""Which snapshots are taken while copies to the host lag behind."""

import pytest

from islands.learner.compute import COPIES_MAX, SnapshotCopies


def played(copy_steps: float, fragments: int, boundaries: int) -> tuple[list[float], int]:
    """Boundaries one step apart, copies one after the other; all fragments are planned.

    Returns:
        The ages in steps at which copies arrived, and how many were on their way at most.
    """
    copies, queue, free_at, most = SnapshotCopies(), list[tuple[float, int, int]](), 0.0, 0
    ages: list[float] = []
    for steps in range(boundaries):
        while queue and queue[0][0] <= steps:
            arrived, fragment, taken = queue.pop(0)
            copies.arrive(fragment)
            ages.append(arrived - taken)
        for fragment in range(fragments):
            if copies.may_begin(fragment, steps):
                copies.begin(fragment, steps)
                free_at = max(free_at, steps) + copy_steps
                queue.append((free_at, fragment, steps))
        most = max(most, len(queue))
    return ages, most


@pytest.mark.parametrize("fragments", [1, 2, 24])
@pytest.mark.parametrize("copy_steps", [0.01, 0.5, 1.0, 1.5, 5.0, 300.0])
def test_copies_that_lag_are_bounded_and_never_starve(fragments: int, copy_steps: float) -> None:
    boundaries = int(20 * fragments * max(1.0, copy_steps)) + 20
    ages, most = played(copy_steps, fragments, boundaries)
    assert most <= COPIES_MAX * fragments
    assert len(ages) >= 0.9 * min(1 / copy_steps, fragments) * (boundaries - 10 * fragments)
    assert max(ages[len(ages) // 2 :]) <= max(1.0, 2 * copy_steps * fragments)


def test_a_copy_that_lags_is_alone() -> None:
    """A second one behind it would be older when it arrives than one taken afterwards."""
    copies = SnapshotCopies()
    copies.begin(0, 0)
    assert copies.may_begin(0, 1)
    copies.begin(0, 1)
    assert not copies.may_begin(0, 2)
    assert not copies.may_begin(0, 3)
    copies.arrive(0)
    assert not copies.may_begin(0, 4)
    copies.arrive(0)
    assert copies.may_begin(0, 4)


def test_while_compute_stands_still_copies_that_lagged_do_not_crowd() -> None:
    copies = SnapshotCopies()
    copies.begin(0, 0)
    for steps in range(6):
        copies.may_begin(0, steps)
    copies.arrive(0)
    begun = [fragment for fragment in range(48) if copies.may_begin(fragment, 5)][:1]
    copies.begin(begun[0], 5)
    for _ in range(20):  # the end of a run: each copy that arrives makes room for another
        copies.arrive(begun.pop(0))
        for fragment in range(48):
            if copies.may_begin(fragment, 5):
                copies.begin(fragment, 5)
                begun.append(fragment)
        assert 1 <= len(begun) <= COPIES_MAX + 1
