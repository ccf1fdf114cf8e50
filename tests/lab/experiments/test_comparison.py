"""Fleets of a file: unlike learners, narrow links, learners that come and go."""

from dataclasses import replace
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.lab.experiments import comparison
from islands.lab.experiments.comparison import RunKey, cells_of, period_s
from islands.lab.experiments.fleet import FleetRun, Group, Link, lock_step, play
from islands.lab.settings.fleets import ComparisonOptions, patient
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import Precision, UpdatePrecision
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing

LOCK = lock_step(Timing())
STREAMING = replace(
    PRESETS[Preset.STREAMING_DILOCO],
    interval_steps=12,
    fragments=4,
    precision=Precision.FP4,
    update_precision=UpdatePrecision.FP4,
)
SIX = replace(patient(), interval_steps=6, fragments=6)


def compared(fleets: dict[str, object], **changed: object) -> ComparisonOptions:
    return ComparisonOptions(run=SIX, fleets=fleets, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [LOCK, STREAMING], ids=["lock-step", "streaming, fp4"])
@pytest.mark.parametrize("gbit_s", [10.0, 400.0])
def test_learners_that_wait_do_so_as_long_as_the_formula_says(
    settings: RunSettings, gbit_s: float
) -> None:
    cell = FleetRun(
        (Group(2),),
        step_s=0.1,
        link=Link(0.002, gbit_s),
        work_s=(0.0, 0.0),
        settings=settings,
    )
    round_s = period_s(cell)
    played = play(replace(cell, warmup_s=2 + 6 * round_s, measured_s=8 * round_s))
    own_s = settings.round_interval_steps(settings.fragments) * cell.step_s
    assert played.figures.goodput == pytest.approx(own_s / round_s, abs=0.01)


def test_the_formula_by_hand() -> None:
    cell = FleetRun((Group(2),), step_s=0.5, settings=LOCK, link=Link(0.0, 64.0))
    assert period_s(cell) == pytest.approx(1.5)
    decoupled = replace(cell, settings=PRESETS[Preset.DECOUPLED_DILOCO])
    assert period_s(decoupled) == pytest.approx(0.5)
    assert period_s(replace(decoupled, link=Link(0.0, 1.0))) == pytest.approx(32 / 24)
    merged = replace(decoupled.settings, merge_moments=True)
    assert period_s(replace(decoupled, settings=merged, link=Link(0.0, 1.0))) > 64 / 24 - 0.01
    narrow = replace(decoupled, groups=(Group(), Group(gbit_s=1.0)))
    assert period_s(narrow) == pytest.approx(32 / 24), "the slowest link of all"


def test_learners_wait_in_lock_step_and_never_otherwise() -> None:
    options = compared(
        {
            "lock": {"lock_step": True},
            "alone": {"run": {"quorum": 1, "grace_safety": 0}},
            "grace": {"run": {"quorum": 1}},
            "carry on": {"run": {"quorum": 4, "adoption": "delay_corrected"}},
        },
        fleet={
            "learners": [{"count": 2}, {"count": 2, "speed": 1.18}],
            "noise": 0.1,
            "gbit_s": 1e4,
            "latency_s": 0.001,
            "steps": 24,
        },
    )
    found = {key: play(cell) for key, cell in cells_of(options).items()}
    lock, alone, grace, carry_on = found.values()
    assert lock.figures.goodput == pytest.approx(0.87, abs=0.05), (
        "the mean over the longest of four"
    )
    for decoupled in (alone, grace):
        assert decoupled.figures.goodput == pytest.approx(1.0, abs=0.005)
    assert alone.training.per_merge == pytest.approx(1.0)
    assert grace.training.per_merge > 3.5
    assert alone.training.yield_share < 0.5 < grace.training.yield_share
    assert carry_on.training.yield_share == pytest.approx(1.0, abs=0.1)
    text = comparison.table(options, found)
    assert "| lock " in text
    assert "history checker" not in text, "nobody comes or goes"
    assert len(comparison.figures_of(options, found)) == 4
    assert comparison.pictures(options, found) == {}


def test_what_is_swept_becomes_columns_and_a_plot() -> None:
    options = compared(
        {
            "lock": {"lock_step": True, "steps": 6, "sweep": {"gbit_s": [3, 1000]}},
            "int8": {
                "run": {"precision": "int8", "update_precision": "int8"},
                "sweep": {"gbit_s": [3, 1000]},
            },
        },
        baseline="lock",
        fleet={
            "learners": [{"latency_s": 0.06}, {"latency_s": 0.08}],
            "parameters": 3e9,
            "step_s": 4,
            "steps": 12,
        },
    )
    found = {key: play(cell) for key, cell in cells_of(options).items()}
    useful = {(key.entry, key.swept): played.useful for key, played in found.items()}
    assert useful["int8", "gbit_s=3"] > 8 * useful["lock", "gbit_s=3"]
    assert useful["lock", "gbit_s=1000"] > 0.8
    text = comparison.table(options, found)
    assert "| useful steps, % | gbit_s=3 | gbit_s=1000 |" in text
    assert "times as fast as lock" in text
    assert comparison.pictures(options, found)["fleets.png"]().startswith(b"\x89PNG")


GROW = {
    "learners": [
        {"count": 2},
        {"count": 2, "from_step": 8, "until_step": 22},
        {"count": 2, "from_step": 11, "until_step": 25},
    ],
    "step_s": 2,
    "warmup_steps": 4,
    "steps": 28,
}


@pytest.mark.parametrize("abrupt", [False, True], ids=["leave", "killed"])
def test_a_run_grows_and_shrinks_while_it_goes_on(*, abrupt: bool) -> None:
    groups = [{**each, "abrupt": abrupt} for each in GROW["learners"]]  # type: ignore[attr-defined]
    options = compared({"grow": {**GROW, "learners": groups}})
    ((key, cell),) = cells_of(options).items()
    played = play(cell)
    assert played.broken == ()
    assert len(played.training.first_merges_s) == 4
    assert max(played.training.first_merges_s) < 8 * cell.step_s
    assert played.figures.longest_stall_s == 0.0
    numbers = [number for _, number in played.training.merges]
    assert (numbers[0], max(numbers), numbers[-1]) == (2, 6, 2)
    assert "no promise was broken" in comparison.table(options, {key: played})
    assert comparison.pictures(options, {key: played})["fleets.png"]().startswith(b"\x89PNG")


def test_a_broken_promise_is_reported() -> None:
    options = compared({"grow": GROW})
    ((key, cell),) = cells_of(options).items()
    found = {key: replace(play(cell), broken=("something was lost",))}
    assert "grow: something was lost" in comparison.table(options, found)
    assert not comparison.EXPERIMENT.kept(found)


def test_who_is_taken_away_comes_again() -> None:
    group = Group(3, from_step=4, until_step=200, stay_steps=20, away_steps=2)
    cell = FleetRun((Group(), group), warmup_s=100.0, measured_s=1900.0)
    first, *others = cell.members()
    assert first.stays
    assert len({member.visits for member in others}) == 3, "each by its own chance"
    for member in others:
        assert not member.early
        assert member.visits[0][0] == 40.0
        for (_, gone_s), (back_s, _) in zip(member.visits, member.visits[1:], strict=False):
            assert back_s == pytest.approx(gone_s + 20.0)
            assert member.killed(gone_s)
        assert max(end_s for _, end_s in member.visits) <= 2000.0
    assert cell.members() == cell.members()
    assert 1900.0 < cell.chip_s() < 4 * 1900.0


def test_extra_compute_that_comes_and_goes_saves_time() -> None:
    extra = {"count": 2, "from_step": 4, "stay_steps": 20}
    options = compared(
        {"two": {}, "twice": {"learners": [{"count": 2}, extra]}},
        baseline="two",
        fleet={"learners": [{"count": 2}], "steps": 40},
    )
    found = {key: play(cell) for key, cell in cells_of(options).items()}
    (*_, last) = comparison.table(options, found).split("\n\n")[0].splitlines()
    assert 1.3 < float(last.split("|")[-2]) < 2.0
    assert [played.broken for played in found.values()] == [(), ()]


def test_the_command_writes_table_figures_and_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "name: two\nrun: {interval_steps: 8, fragments: 8}\n"
        "fleets:\n  one: {learners: [{}, {from_step: 6}], step_s: 1, steps: 16}\n"
    )
    assert main(["lab", "simulate", str(file), "--folder", str(tmp_path / "out")]) == 0
    assert "no promise was broken" in capsys.readouterr().out
    assert {each.name for each in (tmp_path / "out").iterdir()} == {
        "two.md",
        "two.json",
        "two.png",
    }


def test_a_run_of_each_seed_has_its_key() -> None:
    options = compared({"a": {}, "b": {"sweep": {"step_s": [1, 2]}}}, seeds=(3, 4), only="b")
    cells = cells_of(options)
    assert [*cells] == [RunKey("b", f"step_s={step}", seed) for seed in (3, 4) for step in (1, 2)]
    assert [cell.settings.seed for cell in cells.values()] == [3, 3, 4, 4]
    assert [cell.step_s for cell in cells.values()] == [1.0, 2.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("fleet", "sentence"),
    [
        ({"learners": [{"speeds": 2}]}, "unknown key fleets.a.learners.speeds; did you mean speed"),
        ({"learners": [{"count": 0}]}, "fleets.a.learners.count is 0; it must be at least 1"),
        ({"learners": [{"speed": 0}]}, "fleets.a.learners.speed is 0.0; it must be above 0"),
        (
            {"learners": [{"from_step": 3}]},
            "fleets.a.learners needs a group that is there all the time",
        ),
        ({"learners": [{"count": 5000}]}, "fleets.a.learners are more than 4096"),
        (
            {"learners": [{}, {"from_step": 9, "until_step": 4}]},
            "fleets.a.learners.until_step is 4; it must be above from_step, which is 9",
        ),
        ({"learners": []}, "fleets.a.learners needs a group that is there"),
        ({"learners": [{"stay_steps": 0}]}, "fleets.a.learners.stay_steps is 0.0; it must be at"),
        ({"chips": {"count": 4, "mtbi_s": 0}}, "fleets.a.chips.mtbi_s is 0.0; it must be above 0"),
        ({"chips": {"counts": 1}}, "unknown key fleets.a.chips.counts; did you mean count?"),
        ({"gbit_s": 0}, "fleets.a.gbit_s is 0.0; it must be above 0"),
        ({"steps": 0}, "fleets.a.steps is 0; it must be at least 1"),
        ({"preset": "fast"}, "fleets.a.preset is 'fast'; it must be one of"),
    ],
)
def test_what_cannot_work_is_refused(fleet: object, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        cells_of(compared({"a": fleet}))
    assert sentence in str(refused.value)


def test_seeds_must_be_unlike() -> None:
    with pytest.raises(SettingsError, match=r"seeds is \[1, 1\]; it must be unlike whole numbers"):
        compared({}, seeds=(1, 1))
