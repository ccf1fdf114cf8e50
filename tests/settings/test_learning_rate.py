"""The inner learning rate over the run's clock."""

import re

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
    assert DECAYING.learning_rate_at(clock) == pytest.approx(rate)


def test_without_an_end_it_stays_at_its_peak() -> None:
    assert RunSettings(learning_rate=0.5, warmup_steps=0).learning_rate_at(1e9) == 0.5


@given(st.floats(min_value=0, max_value=1e6), st.floats(min_value=0, max_value=1e6))
def test_it_never_rises_after_the_warm_up(one: float, other: float) -> None:
    early, late = sorted((10 + one, 10 + other))
    assert 0.1 - 1e-9 <= DECAYING.learning_rate_at(late) <= DECAYING.learning_rate_at(early) + 1e-12
    assert DECAYING.learning_rate_at(early) <= 1.0


@pytest.mark.parametrize(
    ("total_steps", "warmup"),
    [
        (1, 0.3),
        (300, 90.0),
        (500, 150.0),
        (650, 195.0),
        (3_500, 400.0),
        (20_000, 400.0),
        (None, 100),
    ],
)
def test_the_warm_up_grows_with_the_run(total_steps: int | None, warmup: float) -> None:
    assert RunSettings(total_steps=total_steps).warmup == pytest.approx(warmup)
    assert RunSettings(total_steps=total_steps, warmup_steps=7).warmup == 7


@pytest.mark.parametrize(
    ("tokens", "clock"), [(0, 0.0), (250, 50.0), (1_000, 200.0), (1_100, 200.0)]
)
def test_decay_ends_with_the_budget_of_tokens(tokens: int, clock: float) -> None:
    settings = RunSettings(total_steps=200, budget_tokens=1_000)
    assert settings.clock_after(0.0, steps=1.0, processed_tokens=tokens) == clock


@pytest.mark.parametrize(("total_steps", "budget_tokens"), [(None, 1_000), (200, None)])
def test_without_a_budget_or_an_end_the_clock_counts_steps(
    total_steps: int | None, budget_tokens: int | None
) -> None:
    settings = RunSettings(total_steps=total_steps, budget_tokens=budget_tokens)
    assert settings.clock_after(7.0, steps=0.5, processed_tokens=900) == 7.5


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (RunSettings(), ()),
        (RunSettings(total_steps=300), ()),
        (RunSettings(total_steps=300, warmup_steps=301), ("never comes to its peak",)),
        (RunSettings(total_steps=3, final_learning_rate_share=0), ("from step 3 .* is 0, and",)),
        (RunSettings(total_steps=3, final_learning_rate_share=0, budget_tokens=9), ()),
        (RunSettings(warmup_steps=10**6), ()),
    ],
)
def test_a_rate_that_is_surely_not_meant_is_told(
    settings: RunSettings, said: tuple[str, ...]
) -> None:
    told = settings.rate_doubts
    assert len(told) == len(said)
    assert all(re.search(pattern, doubt) for pattern, doubt in zip(said, told, strict=True))
