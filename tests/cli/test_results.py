"""What a person reads once a run has ended."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from islands.cli.results import results, show_next, show_results
from islands.run.records.figures import LearnerFigures, RunFigures

LEDGER = {
    "imbalance": 0,
    "fragments": [{"processed": 1000, "applied": 900, "late": 0, "lost": 100}] * 2,
}


def summary(**changed: object) -> dict[str, Any]:
    """The summary of a run of two learners that went well, but for what is changed."""
    learner: dict[str, float] = {"steps": 10, "tokens": 500, "incarnations": 1}
    learner |= {"merged_in_time": 1.0, "merged_at_all": 1.0}
    return {
        "tokens": 1000,
        "yield": 1.0,
        "merged_at_all": 1.0,
        "merges": 5,
        "participation": 1.0,
        "wall_s": 10.0,
        "evictions": 0,
        "goodput": 0.95,
        "data_wait": 0.0,
        "longest_stall_s": 0.0,
        "bytes_up": 1_500_000_000,
        "bytes_down": 2_000_000,
        "unbooked_tokens": 0,
        "ledger": LEDGER,
        "learners": {"a": learner, "b": learner},
        **changed,
    }


def remark(figures: RunFigures, name: str, **changed: object) -> str:
    (told,) = [line.remark for line in results(figures, summary(**changed)) if line.name == name]
    return told


def shown(width: int, figures: RunFigures, told: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show_results(console, figures, told)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("name", "changed", "told"),
    [
        ("merged in time", {"yield": 0.97}, "of tokens, before the run ended: good"),
        ("merged in time", {"yield": 0.8}, "of tokens, before the run ended: fair"),
        ("merged in time", {"yield": 0.5}, "of tokens, before the run ended: low, see below"),
        ("merged at all", {"merged_at_all": 0.9}, "of tokens, with the end's"),
        ("goodput", {"goodput": 0.95}, "of learners' time was steps: good"),
        ("merges", {"participation": 0.5}, "with 50% of learners in each"),
        ("longest stall", {}, "no learner told the gaps between its steps"),
        ("tokens", {}, "100 tokens/s on average"),
    ],
)
def test_each_figure_has_a_word(name: str, changed: dict[str, object], told: str) -> None:
    assert remark(RunFigures(), name, **changed) == told


@pytest.mark.parametrize(
    ("gap_s", "told"), [(2.0, "by which a step came late"), (0.0, "no step came late")]
)
def test_a_stall_is_told_where_gaps_were_measured(gap_s: float, told: str) -> None:
    learner = LearnerFigures()
    learner.gaps.add(gap_s)
    assert remark(RunFigures({"a": learner}), "longest stall") == told


def test_a_low_goodput_says_where_the_time_went() -> None:
    started = LearnerFigures(states=[(6.0, "stepping")])
    away = LearnerFigures(states=[(1.0, "stepping"), (2.0, "away")])
    told = "of learners' time was steps; most of the rest was "
    assert remark(RunFigures({"a": started}), "goodput", goodput=0.4) == told + "starting"
    assert remark(RunFigures({"a": away}), "goodput", goodput=0.1) == told + "away"
    starved = LearnerFigures(states=[(0.1, "stepping")], waited_s=9.0)
    waits = told + "waiting for data"
    assert remark(RunFigures({"a": starved}), "goodput", goodput=0.1) == waits


def test_who_came_back_is_named() -> None:
    """So that a death in the night is seen in the morning."""
    again = {name: LearnerFigures(incarnations=2) for name in ("a", "b", "c")}
    assert remark(RunFigures(again), "evictions", evictions=3) == (
        "a was admitted 2 times, and 2 more"
    )


@pytest.mark.parametrize("width", [80, 100, 160])
def test_nothing_is_cut_at_any_width(width: int) -> None:
    figures = RunFigures({"a": LearnerFigures(loss=1.25, bytes_up=1_400_000_000)})
    text = shown(width, figures, summary())
    for told in ("1.5 GB up, 2 MB down", "applied", "90.0%", "lost", "1.250", "1.4 GB", "total"):
        assert told in text
    assert "late" not in [line.split()[0] for line in text.splitlines() if line.strip()]
    assert "imbalance" not in text
    assert "…" not in text


def test_tokens_that_do_not_add_up_are_told() -> None:
    text = shown(80, RunFigures(), summary(ledger={**LEDGER, "imbalance": 3}))
    assert "imbalance, an error of Islands" in text


def test_the_next_commands_can_be_copied() -> None:
    console = Console(file=io.StringIO(), width=40, color_system=None)
    folder = Path("/a/very/long/path/that/is/wider/than/this/terminal")
    show_next(console, folder, generates=True)
    assert isinstance(console.file, io.StringIO)
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    assert f"islands model export {folder} model.safetensors" in lines
    assert f"islands model generate {folder} --prompt TEXT" in lines
