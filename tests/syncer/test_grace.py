"""How long a round waits after its quorum (Eq. 3 of the paper)."""

import pytest

from islands.syncer.grace import Durations, MovingAverage, grace_s


def durations(step_s: float | None, quorum_s: float | None, sync_s: float | None) -> Durations:
    """Measured times."""
    return Durations(MovingAverage(step_s), MovingAverage(quorum_s), MovingAverage(sync_s))


@pytest.mark.parametrize(
    ("step_s", "quorum_s", "sync_s", "overlap", "expected"),
    [
        (1.0, 0.5, 0.5, 2, 0.8),  # 0.8 · (2 − 1)
        (1.0, 0.1, 0.1, 4, 1.0),  # 0.8 · 3.8, at most a step
        (1.0, 1.5, 0.5, 2, 0.0),  # nothing is hidden
        (1.0, 3.0, 3.0, 2, 0.0),  # never negative
        (1.0, 0.0, 0.0, 0, 0.0),  # no overlap
    ],
)
def test_grace_is_a_share_of_what_the_overlap_hides(
    step_s: float, quorum_s: float, sync_s: float, overlap: int, expected: float
) -> None:
    """min(ξ_step, γ·max(0, τ·ξ_step − ξ_quorum − ξ_sync)), by hand."""
    known = durations(step_s, quorum_s, sync_s)
    assert grace_s(known, overlap_steps=overlap, safety=0.8) == pytest.approx(expected)


@pytest.mark.parametrize("missing", range(3))
def test_without_all_three_times_there_is_no_grace(missing: int) -> None:
    """Until step, quorum and synchronisation have been measured, nobody is waited for."""
    times: list[float | None] = [1.0, 0.1, 0.1]
    times[missing] = None
    assert grace_s(durations(*times), overlap_steps=2, safety=0.8) == 0.0


def test_the_average_moves_by_a_fifth() -> None:
    """The first sample counts fully, each newer one by 0.2."""
    average = MovingAverage()
    average.add(10.0)
    assert average.value == 10.0
    average.add(20.0)
    assert average.value == pytest.approx(12.0)
