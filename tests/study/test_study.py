"""A whole study by its command: trials in processes of their own, a table, and going on."""

from pathlib import Path

import pytest
import yaml

from islands.cli.__main__ import main
from islands.settings.run import RunSettings
from islands.settings.study import StudyOptions
from islands.study.cells import Trial, trials_of
from islands.study.plot import plot, points_of
from islands.study.results import prepare, read, write
from islands.study.table import by_cell, rows_of, table
from islands.study.trial import Result
from tests.study.regression import TASK

TOKENS = 400
FILE = {
    "task": TASK,
    "seed_argument": "seed",
    "tokens": TOKENS,
    "seeds": [0],
    "baseline": "dp",
    "run": {"fragments": 1, "interval_steps": 8, "learning_rate": 0.05},
    "cells": {
        "dp": {"learners": 2, "data_parallel": True},
        "two": {"learners": 2},
    },
}
BROKEN = {"broken": {"learners": 1, "task_settings": {"width": 0}}}


def result(loss: float, **changed: object) -> Result:
    """What a trial may have come to."""
    told: dict[str, object] = {
        "figures": {"loss": loss},
        "curve": [(100, {"loss": 2 * loss}), (200, {"loss": loss})],
        "tokens": 200,
        "yield_share": 0.5,
        "merges": 4,
        "participation": 1.0,
        "reason": "tokens",
        "virtual_s": 3.0,
        "wall_s": 1.0,
    }
    return Result(**{**told, **changed})  # type: ignore[arg-type]


def pairs(options: StudyOptions, losses: dict[str, list[float]]) -> list[tuple[Trial, Result]]:
    """Results of a study, by cell and seed."""
    seeds = list(options.seeds)
    return [(t, result(losses[t.name][seeds.index(t.seed)])) for t in trials_of(options)]


SWEPT: dict[str, object] = {
    "dp": {"data_parallel": True, "sweep": {"run.learning_rate": [0.1, 0.2]}},
    "two": {},
}
STUDY = StudyOptions(cells=SWEPT, baseline="dp", seeds=(0, 1, 2), within=0.05)
LOSSES = {
    "dp learning_rate=0.1": [2.0, 2.2, 2.1],
    "dp learning_rate=0.2": [1.0, 1.1, 1.2],
    "two": [1.02, 1.13, 1.23],
}


def test_a_swept_baseline_is_its_best() -> None:
    """Nobody is compared with a rate that was chosen badly."""
    rows = {row.name: row for row in rows_of(STUDY, by_cell(pairs(STUDY, LOSSES)), "loss")}
    verdicts = {name: row.comparison.verdict.value for name, row in rows.items()}
    assert verdicts == {
        "dp learning_rate=0.1": "worse",
        "dp learning_rate=0.2": "baseline",
        "two": "within",
    }
    assert rows["two"].comparison.worse_by == pytest.approx((0.02 + 0.03 / 1.1 + 0.025) / 3)


def test_the_table_has_a_row_for_each_cell() -> None:
    """As Markdown, with all columns under their heads."""
    lines = table(STUDY, by_cell(pairs(STUDY, LOSSES)), "loss").splitlines()
    assert len({len(line) for line in lines[:5]}) == 1
    assert [line.split("|")[1].strip() for line in lines[2:5]] == list(LOSSES)
    assert lines[4].split("|")[2:4] == [" 1.127 ", " 1.02 1.13 1.23 "]
    assert "seeds 0, 1, 2" in lines[6]


def test_the_plot_shows_the_mean_of_the_seeds() -> None:
    """A PNG; a seed whose curve is shorter ends the mean, and what is no number is left out."""
    short = result(3.0, curve=[(100, {"loss": 3.0})])
    found = {0: result(1.0), 1: short}
    assert points_of(found, "loss") == [(100.0, 2.5)]
    assert points_of({0: result(float("nan"))}, "loss") == []
    assert plot({"a": found}, "loss", "study").startswith(b"\x89PNG")
    assert plot({"a": {0: result(1.0, curve=[])}}, "loss", "study").startswith(b"\x89PNG")


def test_a_result_is_kept_for_its_trial_alone(tmp_path: Path) -> None:
    """A changed trial finds none; a damaged file counts as none, and is computed again."""
    one, other = trials_of(StudyOptions(cells={"a": {}}, run=RunSettings(learning_rate=0.1)))
    prepare(tmp_path)
    write(tmp_path, one, result(1.5))
    assert read(tmp_path, one) == result(1.5)
    assert read(tmp_path, other) is None
    (path,) = (tmp_path / "trials").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert read(tmp_path, one) is None


@pytest.mark.integration
def test_a_study_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What has a result is not computed again; one that fails is told, and takes nobody along."""
    file, folder = tmp_path / "study.yaml", tmp_path / "results"
    file.write_text(yaml.safe_dump(FILE))
    arguments = ["study", str(file), "--folder", str(folder)]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "[2/2]" in told
    assert "known" not in told
    assert (folder / "study.md").read_text() in told
    assert (folder / "study.png").read_bytes().startswith(b"\x89PNG")

    file.write_text(yaml.safe_dump({**FILE, "cells": {**FILE["cells"], **BROKEN}}))  # type: ignore[dict-item]
    assert main(arguments) == 1
    told = capsys.readouterr().out
    assert told.count("(known)") == 2
    (line,) = [line for line in told.splitlines() if "failed" in line]
    assert "broken, seed 0: failed: " in line
    assert "ended with code" not in line
    assert "| two " in told


def test_a_folder_that_cannot_be_written_to_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not after the first trial, which may take an hour."""
    file, folder = tmp_path / "study.yaml", tmp_path / "results"
    file.write_text(yaml.safe_dump(FILE))
    folder.write_text("a file")
    assert main(["study", str(file), "--folder", str(folder)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"the folder {folder} cannot be written" in told.err


def test_a_figure_that_the_task_has_not_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the first result, not after the last; here it is on disk already."""
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump({**FILE, "metric": "accuracy", "folder": str(tmp_path)}))
    options = StudyOptions(
        task=TASK,
        seed_argument="seed",
        tokens=TOKENS,
        seeds=(0,),
        run=RunSettings(fragments=1, interval_steps=8, learning_rate=0.05),
        cells=FILE["cells"],  # type: ignore[arg-type]
    )
    prepare(tmp_path)
    for trial in trials_of(options):
        write(tmp_path, trial, result(1.0))
    assert main(["study", str(file)]) == 2
    assert "metric is 'accuracy'; the task's evaluation has loss" in capsys.readouterr().err
