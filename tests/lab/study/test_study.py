"""A whole study by its command: trials in processes of their own, a table, and going on."""

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path

import pytest
import yaml

from islands.cli.__main__ import main
from islands.lab.settings.study import StudyOptions
from islands.lab.study.cells import trials_of
from islands.lab.study.runner import prepare, read, write
from islands.lab.study.statistics import Comparison, Verdict
from islands.lab.study.table import Row, by_cell, plot, points_of, rows_of, table
from islands.lab.study.trial import Result
from islands.protocol.settings.run import RunSettings
from tests.lab.study.regression import TASK

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


LAST = (16, 400, {"loss": 1.0})


def result(loss: float, **changed: object) -> Result:
    told: dict[str, object] = {
        "figures": {"loss": loss},
        "curve": [(4, 100, {"loss": 2.0}), (16, 400, {"loss": loss})],
        "tokens": 400,
        "yield_share": 0.5,
        "merges": 4,
        "participation": 1.0,
        "reason": "tokens",
        "virtual_s": 3.0,
        "wall_s": 1.0,
    }
    return Result(**{**told, **changed})  # type: ignore[arg-type]


SWEPT: dict[str, object] = {
    "dp": {"data_parallel": True, "sweep": {"run.learning_rate": [0.1, 0.2]}},
    "two": {},
}
STUDY = StudyOptions(cells=SWEPT, baseline="dp", seeds=(0, 1, 2), within=0.05, seed_argument="seed")
LOSSES: dict[str, Sequence[float | None]] = {
    "dp learning_rate=0.1": [2.0, 2.2, 2.1],
    "dp learning_rate=0.2": [1.0, 1.1, 1.2],
    "two": [1.02, 1.13, 1.23],
}


def rows(losses: Mapping[str, Sequence[float | None]]) -> dict[str, Row]:
    """The rows of the study, where a trial without a loss has failed."""
    trials = trials_of(STUDY)
    found = {}
    for trial in trials:
        loss = losses[trial.name][trial.seed]
        found[trial.fingerprint] = None if loss is None else result(loss)
    return {row.name: row for row in rows_of(STUDY, trials, by_cell(trials, found), "loss")}


def test_a_swept_baseline_is_its_best() -> None:
    found = rows(LOSSES)
    assert {name: row.comparison.verdict.value for name, row in found.items()} == {
        "dp learning_rate=0.1": "worse",
        "dp learning_rate=0.2": "baseline",
        "two": "within",
    }
    assert found["two"].comparison.worse_by == pytest.approx(0.08 / 3.3)


@pytest.mark.parametrize("wrong", [None, float("nan")])
def test_a_cell_that_lacks_a_seed_has_failed(wrong: float | None) -> None:
    found = rows({**LOSSES, "two": [0.5, wrong, 0.5]})
    assert found["two"].comparison == Comparison(Verdict.FAILED)
    found = rows({**LOSSES, "dp learning_rate=0.2": [0.1, wrong, 0.1]})
    verdicts = {name: row.comparison.verdict.value for name, row in found.items()}
    assert verdicts["dp learning_rate=0.2"] == "failed"
    assert verdicts["dp learning_rate=0.1"] == "baseline"
    nothing = {"dp learning_rate=0.1": [wrong] * 3, "dp learning_rate=0.2": [wrong] * 3}
    assert rows({**LOSSES, **nothing})["two"].comparison == Comparison(Verdict.UNDECIDED)


def test_the_table_has_a_row_for_each_cell() -> None:
    lines = table(STUDY, list(rows({**LOSSES, "two": [None] * 3}).values()), "loss").splitlines()
    assert len({len(line) for line in lines[:5]}) == 1
    assert [line.split("|")[1].strip() for line in lines[2:5]] == list(LOSSES)
    assert [cell.strip() for cell in lines[3].split("|")[2:4]] == ["1.1", "1 1.1 1.2"]
    assert "failed" in lines[4]
    assert "seeds 0, 1, 2. " in lines[6]


def test_the_plot_shows_the_mean_of_the_seeds_where_all_have_one() -> None:
    one = result(1.0, curve=[(1, 100, {"loss": 3.0}), (2, 210, {"loss": 2.0}), LAST])
    other = result(3.0, curve=[(2, 190, {"loss": 4.0}), (16, 400, {"loss": 3.0})])
    assert points_of({0: one, 1: other}, "loss") == [(200.0, 3.0), (400.0, 2.0)]
    assert points_of({0: result(float("nan"))}, "loss") == [(100.0, 2.0)]
    assert points_of({}, "loss") == []
    assert plot({"a": {0: one}, "b": {}}, "loss", "study").startswith(b"\x89PNG")
    assert plot({"a": {}}, "loss", "study").startswith(b"\x89PNG")


def test_a_result_is_kept_for_its_trial_alone(tmp_path: Path) -> None:
    one, other = trials_of(StudyOptions(cells={"a": {}}, run=RunSettings(learning_rate=0.1)))
    prepare(tmp_path).close()
    write(tmp_path, one, result(1.5))
    assert read(tmp_path, one) == result(1.5)
    assert read(tmp_path, other) is None
    (path,) = (tmp_path / "trials").iterdir()
    write(tmp_path, one, result(float("nan")))
    kept = read(tmp_path, one)
    assert kept is not None
    assert isnan(kept.metric("loss"))
    path.write_bytes(path.read_bytes()[:-5])
    assert read(tmp_path, one) is None


@pytest.mark.integration
def test_a_study_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "study.yaml", tmp_path / "results"
    file.write_text(yaml.safe_dump(FILE))
    arguments = ["lab", "study", str(file), "--folder", str(folder)]
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
    (line,) = [line for line in told.splitlines() if line.startswith("[") and "failed" in line]
    assert "broken, seed 0: failed: " in line
    assert "ended with code" not in line
    assert "| two " in told


def test_two_studies_do_not_use_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would write each other's results."""
    file, folder = tmp_path / "study.yaml", tmp_path / "results"
    file.write_text(yaml.safe_dump(FILE))
    with prepare(folder):
        assert main(["lab", "study", str(file), "--folder", str(folder)]) == 2
    assert "is in use by another study" in capsys.readouterr().err


def test_what_did_not_spend_its_budget_has_no_metric() -> None:
    assert result(1.0).metric("loss") == 1.0
    assert isnan(result(1.0, reason="diverged").metric("loss"))
    assert isnan(result(1.0).metric("accuracy"))


def test_a_folder_that_cannot_be_written_to_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "study.yaml", tmp_path / "results"
    file.write_text(yaml.safe_dump(FILE))
    folder.write_text("a file")
    assert main(["lab", "study", str(file), "--folder", str(folder)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"the folder {folder} cannot be used" in told.err


def test_a_figure_that_the_task_has_not_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    prepare(tmp_path).close()
    for trial in trials_of(options):
        write(tmp_path, trial, result(1.0))
    assert main(["lab", "study", str(file)]) == 2
    assert "metric is 'accuracy'; the task's evaluation has loss" in capsys.readouterr().err
