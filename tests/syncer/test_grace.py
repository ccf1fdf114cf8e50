"""How long a round waits after its quorum (Eq. 3 of the paper)."""

import pytest

from islands.protocol.moving_average import MovingAverage
from islands.protocol.syncer.timeouts import WARN_EVERY_S
from islands.protocol.syncer.timing import Durations, grace_s
from islands.protocol.syncer.watches import GraceWatch, OverlapShortfall


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


def looks(watch: GraceWatch, known: Durations, *times_s: float, overlap: int = 2) -> list[float]:
    """When a watch that looks at these times says something."""
    return [
        now_s
        for now_s in times_s
        if watch.look(known, overlap_steps=overlap, patient_s=10.0, now_s=now_s) is not None
    ]


def test_an_exchange_that_is_too_long_is_told_after_a_while_and_then_once_a_minute() -> None:
    """By how much it is too long, and how many steps would hide it."""
    watch, slow = GraceWatch(), durations(1.0, 2.0, 1.5)
    assert looks(watch, slow, 0.0, 9.9) == []
    found = watch.look(slow, overlap_steps=2, patient_s=10.0, now_s=10.0)
    assert found == OverlapShortfall(exchange_s=3.5, hidden_s=2.0, steps_needed=5)
    assert grace_s(slow, overlap_steps=found.steps_needed, safety=0.8) > 0
    times_s = [10.0 + second for second in range(1, 150)]
    assert looks(watch, slow, *times_s) == [10.0 + WARN_EVERY_S, 10.0 + 2 * WARN_EVERY_S]


def test_a_passing_delay_is_not_worth_a_word() -> None:
    """What is well again in between begins anew."""
    watch = GraceWatch()
    for start_s in (0.0, 9.0, 18.0):
        assert looks(watch, durations(1.0, 2.0, 1.5), start_s, start_s + 8.0) == []
        assert looks(watch, durations(1.0, 0.1, 0.1), start_s + 8.5) == []


@pytest.mark.parametrize("known", [durations(None, 2.0, 2.0), durations(1.0, 2.0, None)])
def test_what_is_not_measured_lacks_nothing(known: Durations) -> None:
    """Nothing is said before all three times are known."""
    assert looks(GraceWatch(), known, 0.0, 100.0) == []


def test_without_overlap_there_is_nothing_to_lack() -> None:
    """τ = 0 is a choice, and never has a grace."""
    assert looks(GraceWatch(), durations(1.0, 2.0, 2.0), 0.0, 100.0, overlap=0) == []
