"""The interval between two merges of a fragment over the course of a run."""

from dataclasses import replace

import pytest

from islands.protocol.errors import SettingsError
from islands.protocol.settings.interval import interval_steps_at
from islands.protocol.settings.learning_rate import learning_rate
from islands.protocol.settings.run import IntervalGrowth, LearnerWaits, RunSettings

RATES = RunSettings(
    interval_steps=96, learning_rate=0.01, warmup_steps=10, total_steps=1010, interval_first_steps=4
)


@pytest.mark.parametrize("clock", [0.0, 500.0, 1e9])
def test_by_default_it_is_the_same_throughout(clock: float) -> None:
    """H, whatever the rate."""
    assert interval_steps_at(RunSettings(interval_steps=24), clock) == 24


def test_it_grows_with_the_inverse_square_of_the_rate() -> None:
    """Half the rate, four times the interval, and never more than H."""
    assert [interval_steps_at(RATES, clock) for clock in (0, 9, 10)] == [4, 4, 4]
    middle = 10 + 500
    assert learning_rate(RATES, middle) == pytest.approx(0.01 * 0.55)
    assert interval_steps_at(RATES, middle) == pytest.approx(4 / 0.55**2)
    assert interval_steps_at(RATES, 1010) == 96


def test_a_rate_that_ends_at_zero_gives_the_longest_interval() -> None:
    """Nothing is divided by it."""
    ends = replace(RATES, final_learning_rate_share=0.0)
    assert interval_steps_at(ends, 5000) == 96


def test_it_grows_linearly_over_the_steps_it_is_told() -> None:
    """From the first to the longest, which it keeps."""
    linear = replace(RATES, interval_growth=IntervalGrowth.LINEAR, interval_growth_steps=100)
    assert [interval_steps_at(linear, clock) for clock in (0, 50, 100, 10**6)] == [4, 50, 96, 96]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"interval_first_steps": 30, "interval_steps": 24}, "at most interval_steps, 24"),
        ({"interval_first_steps": 0}, "interval_first_steps is 0; it must be at least 1"),
        ({"interval_growth_steps": 0}, "interval_growth_steps is 0; it must be at least 1"),
        (
            {"interval_first_steps": 4, "learner_waits": LearnerWaits.AT_TAU},
            "where learner_waits is at_tau the interval is the same throughout",
        ),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, int], said: str) -> None:
    """The sentence names the setting, its value and what is allowed."""
    with pytest.raises(SettingsError, match=said):
        RunSettings(**settings)  # type: ignore[arg-type]


def test_reports_and_rounds_follow_the_shortest_interval() -> None:
    """So a round at the start does not wait for a report that is due later."""
    settings = replace(RATES, fragments=2, interval_first_steps=32, overlap_steps=20)
    assert settings.report_interval_steps(2) == 2
    assert settings.open_rounds_max(2) == 2
    assert settings.open_rounds(2, 20, 96) == 1
    longest = replace(settings, interval_first_steps=None)
    assert (longest.report_interval_steps(2), longest.open_rounds_max(2)) == (6, 1)
