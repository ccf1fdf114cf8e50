"""Settings that cannot work are refused; what follows from them is computed in one place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import LearnerWaits, Precision, Trigger
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings, Timing


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"interval_steps": 0}, "interval_steps is 0"),
        ({"budget_tokens": 0}, "budget_tokens is 0"),
        ({"outer": OuterSettings(momentum=1.0)}, "outer.momentum is 1.0"),
        ({"timing": Timing(patience=0.0)}, "timing.patience is 0.0"),
        ({"timing": Timing(evict_s=1.0)}, "timing.evict_s is 1.0; it must be at least suspect_s"),
        ({"outer": OuterSettings(delay_merges=0)}, "outer.delay_merges is 0; .* at least 1"),
        (
            {"outer": OuterSettings(optimizer="delayed_nesterov")},
            "outer.optimizer is delayed_nesterov; it needs outer.delay_merges",
        ),
        (
            {"outer": OuterSettings(delay_merges=3)},
            "outer.delay_merges is 3, which optimizer sgd does not take",
        ),
        (
            {"outer": OuterSettings(momentum=0.9, optimizer="adam")},
            "outer.momentum is 0.9, which optimizer adam does not take; its own arguments are set",
        ),
        (
            {"outer": OuterSettings(arguments={"b1": 0.5})},
            "outer.arguments is {'b1': 0.5}, which optimizer sgd does not take$",
        ),
        ({"learning_rate": -1.0}, "learning_rate is -1.0; it must be above 0, and finite"),
        ({"budget_s": 0.0}, "budget_s is 0.0"),
        ({"warmup_steps": -1}, "warmup_steps is -1; it must be at least 0"),
        ({"total_steps": 0}, "total_steps is 0"),
        (
            {"precision": Precision.ADAPTIVE, "overlap_steps": 0},
            "precision is adaptive and overlap_steps is 0: .* set overlap_steps to 1 or more",
        ),
        (
            {"precision": Precision.ADAPTIVE, "learner_waits": LearnerWaits.AT_TAU},
            "precision is adaptive; where learner_waits is at_tau a learner waits for its exchange",
        ),
        (
            {"precision": Precision.ADAPTIVE, "trigger": Trigger.LEARNER},
            "precision is adaptive; where trigger is learner a learner is pulled only when it asks",
        ),
        ({"grace_safety": 1.5}, r"grace_safety is 1.5; it must be in \[0, 1\]"),
        ({"top_k_share": 0.0}, "top_k_share is 0.0; it must be above 0, and at most 1"),
        ({"run": "a b"}, "run is 'a b'; it must be 1 to 64 letters"),
    ],
)
def test_a_setting_that_cannot_work_is_named(changes: dict[str, object], names: str) -> None:
    with pytest.raises(SettingsError, match=names):
        RunSettings(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("interval", "fragments", "overlap", "expected"),
    [(24, 24, 2, 2), (24, 24, 0, 1), (500, 1, 0, 1), (10, 24, 2, 5), (1, 4, 100, 4)],
)
def test_rounds_open_at_once(interval: int, fragments: int, overlap: int, expected: int) -> None:
    settings = RunSettings(interval_steps=interval, overlap_steps=overlap)
    assert settings.open_rounds_max(fragments) == expected


@pytest.mark.parametrize(("interval", "steps"), [(1, 100), (500, 500)])
def test_steps_after_which_a_learner_is_well(interval: int, steps: int) -> None:
    assert RunSettings(interval_steps=interval).well_steps == steps


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_progress_is_reported_several_times_per_round(interval: int, fragments: int) -> None:
    settings = RunSettings(interval_steps=interval)
    reported = settings.report_interval_steps(fragments)
    assert reported >= 1
    assert reported <= max(1, settings.round_interval_steps(fragments) / 8)


def test_patience_scales_every_duration() -> None:
    timing = Timing(patience=0.2)
    assert timing.scaled(timing.evict_s) == pytest.approx(1.0)
