"""The inner learning rate over the run's clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.settings.run import RunSettings

DECAYING = RunSettings(
    learning_rate=1.0, warmup_steps=10, total_steps=110, final_learning_rate_share=0.1
)


@pytest.mark.parametrize(
    ("clock", "rate"),
    [
        (0, 1 / 11),
        (4, 5 / 11),
        (9, 10 / 11),
        (10, 1.0),
        (60, 0.55),  # halfway: f + (1 − f)/2
        (110, 0.1),
        (10_000, 0.1),
    ],
)
def test_it_warms_up_and_decays(clock: float, rate: float) -> None:
    """Linear to the peak, then cosine to the floor, and it stays there."""
    assert DECAYING.learning_rate_at(clock) == pytest.approx(rate)


def test_without_an_end_it_stays_at_its_peak() -> None:
    """No `total_steps`: constant after the warm-up."""
    assert RunSettings(learning_rate=0.5, warmup_steps=0).learning_rate_at(1e9) == 0.5


@given(st.floats(min_value=0, max_value=1e6), st.floats(min_value=0, max_value=1e6))
def test_it_never_rises_after_the_warm_up(one: float, other: float) -> None:
    """A later clock has no higher rate, and no rate leaves its bounds."""
    early, late = sorted((10 + one, 10 + other))
    assert 0.1 - 1e-9 <= DECAYING.learning_rate_at(late) <= DECAYING.learning_rate_at(early) + 1e-12
    assert DECAYING.learning_rate_at(early) <= 1.0
