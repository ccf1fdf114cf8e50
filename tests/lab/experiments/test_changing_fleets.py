"""Learners that come and go: what that costs those that stay, and what it saves of a run's time."""

from dataclasses import replace
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.lab.experiments import growth, scavenging
from islands.lab.experiments.growth import Gaps
from islands.lab.experiments.scavenging import (
    DATA_PARALLEL,
    DECOUPLED,
    Job,
    Key,
    ScavengedChips,
    Units,
    ideal,
)
from islands.lab.settings.fleets import (
    GrowOptions,
    ScavengeOptions,
    of_growth,
    of_scavenging,
)
from islands.protocol.errors import SettingsError

GROW = GrowOptions(
    run=replace(of_growth(), interval_steps=6, fragments=6),
    learners=2,
    most=6,
    wave=2,
    wave_steps=3,
    steady_steps=8,
)


@pytest.mark.parametrize("abrupt", [False, True], ids=["leave", "killed"])
def test_a_run_grows_and_shrinks_while_it_goes_on(*, abrupt: bool) -> None:
    options = replace(GROW, abrupt=abrupt)
    grown = growth.play(options)
    assert grown.violations == ()
    assert grown.imbalance == 0
    assert [number for _, number in grown.present] == [2, 4, 6, 4, 2]
    assert len(grown.first_merge_s) == 4
    assert max(grown.first_merge_s) < 8 * options.step_s
    first, *_, last = grown.phases
    assert first.per_merge == pytest.approx(2.0)
    assert last.learners == 2.0
    assert max(phase.longest_gap_s for phase in grown.phases) == 0.0
    assert max(number for _, number in grown.per_merge) == 6
    assert "no promise was broken" in growth.table(options, {growth.RUN: grown})
    assert growth.figures_of(options, {growth.RUN: grown})["violations"] == ()
    assert growth.pictures(options, {growth.RUN: grown})["grow.png"]().startswith(b"\x89PNG")


def test_the_command_writes_table_figures_and_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--learners", "1", "--most", "2", "--wave", "1", "--wave_steps", "2"]
    options += ["--steady_steps", "8", "--run.interval_steps", "8", "--run.fragments", "8"]
    assert main(["simulate", "grow", *options, "--folder", str(tmp_path)]) == 0
    assert "1 of 1 newcomers were merged." in capsys.readouterr().out
    assert {file.name for file in tmp_path.iterdir()} == {"grow.md", "grow.json", "grow.png"}


def test_gaps_are_between_steps() -> None:
    gaps = Gaps()
    for begin_s in (5.0, 6.0, 8.5, 20.0):
        assert gaps.step("a", begin_s, 1.0) == begin_s + 1.0
    assert gaps.longest_s(["a", "b"], 0.0, 20.0) == 1.5
    assert gaps.longest_s(["a"], 0.0, 21.0) == 10.5
    assert gaps.longest_s(["a"], 0.0, 8.0) == 0.0


SCAVENGE = ScavengeOptions(
    run=replace(of_scavenging(), interval_steps=6, fragments=6),
    learners=2,
    extra=(0.0, 1.0),
    steps=40,
    noise=0.0,
    stay_s=1e9,
)


def test_extra_compute_saves_time() -> None:
    found = {key: scavenging.play(job) for key, job in scavenging.jobs_of(SCAVENGE).items()}
    times = scavenging.relative(found)
    assert times[DECOUPLED, 0.0] == times[DATA_PARALLEL, 0.0] == 1.0
    assert times[DECOUPLED, 1.0] == pytest.approx(ideal(SCAVENGE, 1.0), abs=0.06)
    stalls_s = SCAVENGE.rejoin_stall_s + SCAVENGE.stall_s
    stalled = ideal(SCAVENGE, 1.0) + stalls_s / (SCAVENGE.steps * SCAVENGE.step_s)
    assert times[DATA_PARALLEL, 1.0] == pytest.approx(stalled, abs=0.02)
    assert "0.75" in scavenging.table(SCAVENGE, found)
    assert len(scavenging.figures_of(SCAVENGE, found)) == 4


def test_what_was_lost_is_replaced() -> None:
    options = replace(SCAVENGE, extra=(0.5,), stay_s=40.0)
    (played,) = (
        scavenging.play(job)
        for key, job in scavenging.jobs_of(options).items()
        if key.kind == DECOUPLED
    )
    assert played.losses > 1
    assert 0.5 < played.yield_share <= 1.0


def test_the_ideal_is_what_was_published_of_decoupled_runs() -> None:
    theirs = scavenging.PUBLISHED[DECOUPLED]
    ours = {extra: ideal(ScavengeOptions(), extra) for extra in theirs}
    assert ours == pytest.approx(theirs, abs=0.006)


def test_units_change_when_they_say_so() -> None:
    job = Job(replace(SCAVENGE, stay_s=100.0, away_s=7.0), DECOUPLED, 2, seed=3)
    units = Units.of(job)
    units.see(0.1, 5.0)
    assert not units.open
    units.see(0.3, 10.0)
    assert all(unit.there for unit in units.units)
    (lost, *_) = sorted(units.units, key=lambda unit: unit.changes_s)
    (index,) = units.change(lost.changes_s)
    assert not units.units[index].there
    assert units.losses == 1
    assert index in units.change(lost.changes_s)
    assert units.units[index].there
    units.see(0.8, 1e6)
    assert not any(unit.there for unit in units.units)
    assert units.change(1e9) == []


def test_data_parallel_chips_stall_when_units_change() -> None:
    options = replace(SCAVENGE, window=(0.0, 0.5), steps=4)
    job = Job(options, DATA_PARALLEL, 2, seed=0)
    device = ScavengedChips(Units.of(job), job)
    assert device.step(0.0, 10.0) == pytest.approx(16.0 + 5.0)
    assert device.step(21.0, 10.0) == pytest.approx(26.0)
    assert device.step(26.0, 10.0) == pytest.approx(26.0 + 18.0 + 10.0), "they are gone"
    assert device.step(54.0, 10.0) == pytest.approx(64.0)


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (ScavengeOptions, {"extra": (0.3,)}, "extra has 0.3 of 4 learners; each must be a whole"),
        (ScavengeOptions, {"extra": (-0.25,)}, "extra has -0.25 of 4 learners"),
        (ScavengeOptions, {"window": (0.7, 0.2)}, "window is .0.7, 0.2.; it must be two shares"),
        (ScavengeOptions, {"window": (0.7,)}, "window is .0.7.; it must be two shares"),
        (ScavengeOptions, {"learners": 0}, r"learners is 0; it must be in \[1, 4096\]"),
        (ScavengeOptions, {"stay_s": 0.0}, "stay_s is 0.0; it must be above 0"),
        (GrowOptions, {"learners": 100}, "learners is 100 and most is 100; a run grows"),
        (GrowOptions, {"wave": 0}, "wave is 0; it must be at least 1"),
        (GrowOptions, {"step_s": 0.0}, "step_s is 0.0; it must be above 0"),
    ],
)
def test_what_cannot_work_is_refused(kind: type, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        kind(**options)


def test_a_run_has_its_key() -> None:
    jobs = scavenging.jobs_of(replace(SCAVENGE, seeds=(1, 2)))
    assert len(jobs) == 8
    assert jobs[Key(DECOUPLED, 1.0, 2)].units == 2
    assert (
        jobs[Key(DATA_PARALLEL, 0.0, 1)].budget_tokens == jobs[Key(DECOUPLED, 1.0, 2)].budget_tokens
    )
