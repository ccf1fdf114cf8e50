"""How long a run of real processes may take follows from its timeouts and its steps."""

from dataclasses import replace
from pathlib import Path

import pytest

from islands.lab.faults.fleet import Fleet, HubSettings
from islands.lab.faults.injections import hangs_most_s
from islands.lab.faults.real import period_s, ready_s
from islands.lab.faults.verdict import NO_GAP, Control
from islands.lab.settings.chaos import ChaosOptions, sleeping
from islands.protocol.settings.run import RunSettings, Timing
from islands.settings.groups import RunFile
from islands.settings.run_spec import RunSpec

SLOW = Timing(patience=10.0)


def test_whoever_hangs_is_waited_for_until_it_must_be_seen() -> None:
    assert hangs_most_s(SLOW) > SLOW.scaled(SLOW.stalled_s)
    assert hangs_most_s(Timing(patience=0.2)) == pytest.approx(66.0)


def test_a_run_may_take_its_closing_rounds_to_end(tmp_path: Path) -> None:
    spec = RunSpec(settings=RunSettings(timing=SLOW))
    assert Fleet(tmp_path, HubSettings(spec, 2)).end_s == pytest.approx(330.0)


def test_learners_have_the_time_that_their_steps_take() -> None:
    run = RunSettings(interval_steps=8, timing=Timing(patience=1.0))
    sleeps = replace(sleeping(), run=run, task_settings={"step_s": 300.0})
    assert ready_s(ChaosOptions(file=sleeps)) == pytest.approx(180.0 + 3 * 8 * 300.0)
    computes = RunFile(run=run, task="islands.tasks.stdlib_bytes:StdlibBytes")
    assert ready_s(ChaosOptions(file=computes)) == pytest.approx(180.0 + 2 * 600.0)


def test_learners_keep_up_by_the_pace_that_the_control_shows() -> None:
    options = ChaosOptions(file=replace(sleeping(), run=RunSettings(interval_steps=8)))
    control = Control(0.0, 600.0, NO_GAP, {"learner-0": 1.0, "learner-1": 1 / 300})
    rest_s = 2 * 2.0 + 5.0
    assert period_s(options, control) == pytest.approx(8 * 300 + rest_s)
    assert period_s(options, replace(control, rates={})) == pytest.approx(8 * 0.02 + rest_s)
