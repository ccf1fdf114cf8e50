"""docs/metrics.md has every field of metrics.jsonl, and no other."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from islands.model.evaluation import Judged
from islands.protocol.messages.control import METRICS_MAX
from islands.protocol.settings.run import RunSettings
from islands.run.records.run_folder import RunFolder
from tests.protocol.tape.samples import MERGED, admitted, evicted
from tests.run.test_run_folder import Row, rows, steps_of, told

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
FIELD = re.compile(r"^\| `(step|run|merge|evaluation|event)` \| `([a-z_]+)` \|", re.MULTILINE)
OWN_FIGURE = "bits"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run", RunSettings(run="one"), fragments=2)
    for name in ("a", "b"):
        made.write(0.0, "v", admitted(name))
    return made


def written(folder: RunFolder) -> list[Row]:
    folder.close()
    return rows(folder.path / "metrics.jsonl")


def merged(folder: RunFolder, at_s: float, **behind: int) -> None:
    entry = structs.replace(MERGED, contributions=len(behind))
    lists = {"participants": [*behind], "behind": [*behind.values()]}
    folder.write(at_s, "s", structs.replace(entry, **lists))


def test_the_page_has_every_field_that_is_written_and_no_other(folder: RunFolder) -> None:
    folder.on_figures("a", 1.0, told("p", 1))
    folder.on_figures("b", 2.0, replace(told("p", 1), metrics=(("accuracy", 0.5),)))
    folder.write(3.0, "s", MERGED)
    folder.evaluation(4.0, Judged(3.0, 40), {OWN_FIGURE: 1.5})
    folder.write(5.0, "v", evicted("b"))
    found = {(row["kind"], name) for row in written(folder) for name in row}
    found -= {(kind, "kind") for kind, _ in found} | {("evaluation", OWN_FIGURE)}
    assert found == set(FIELD.findall(PAGE.read_text()))


def test_a_learner_takes_part_in_the_merges_while_it_trains(folder: RunFolder) -> None:
    merged(folder, 1.0, a=0)
    merged(folder, 2.0, a=2, b=1)
    folder.write(3.0, "v", evicted("b"))
    merged(folder, 4.0, a=1)
    folder.write(5.0, "s", structs.replace(MERGED, contributions=99))
    told_of = folder.figures.learners
    assert (told_of["a"].participation, told_of["a"].staleness) == (1.0, 1.0)
    assert (told_of["b"].participation, told_of["b"].staleness) == (0.5, 1.0)
    staleness = [row["staleness"] for row in written(folder) if row["kind"] == "merge"]
    assert staleness == [0.0, 1.5, 1.0, None], "the last note had not all names"


def test_metrics_are_smoothed_averaged_and_bounded(folder: RunFolder) -> None:
    for name, accuracy in (("a", 0.5), ("b", 0.75)):
        folder.on_figures(name, 1.0, replace(told(name, 1), metrics=(("accuracy", accuracy),)))
    assert folder.figures.metrics == {"accuracy": 0.625}
    folder.on_figures("a", 3.0, replace(told("a", 2), metrics=(("accuracy", 1.0),)))
    assert folder.figures.learners["a"].metrics["accuracy"] == pytest.approx(0.525)
    for steps in range(3, 3 + METRICS_MAX):
        lie = replace(told("a", steps), metrics=((f"m{steps}", 1.0),))
        folder.on_figures("a", 2.0 * steps, lie)
    folder.write(90.0, "v", admitted("a"))
    folder.on_figures("a", 99.0, replace(told("a", 99), metrics=(("late", 1.0),)))
    assert len(folder.figures.learners["a"].metrics) == METRICS_MAX
    names = {name for row in written(folder) for name in row.get("metrics", ())}  # type: ignore[attr-defined]
    assert len(names) == METRICS_MAX
    assert "late" not in names


def test_a_metric_that_is_no_number_ends_nothing(folder: RunFolder) -> None:
    folder.on_figures("a", 1.0, replace(told("a", 1), metrics=(("accuracy", float("nan")),)))
    assert folder.figures.metrics == {}
    folder.keep(2.0)
    assert written(folder)[-1]["metrics"] == {"accuracy": None}
    again = RunFolder(folder.path, RunSettings(run="one"), fragments=2)
    again.close()
    assert again.figures.learners["a"].metrics == {"accuracy": None}
    assert json.loads((folder.path / "figures.json").read_text())


def test_a_heartbeat_between_two_steps_adds_nothing(folder: RunFolder) -> None:
    for second in range(300):
        folder.on_figures("a", float(second), told("p", 1))
    folder.on_figures("a", 300.0, told("p", 2))
    folder.close()
    assert [row["steps"] for row in steps_of(folder)] == [1, 2]
    assert len(folder.figures.losses.all()) == 2
