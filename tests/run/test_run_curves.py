"""The curves of a run, read from its metrics, however long these are."""

import json
from pathlib import Path

import pytest

from islands.run.records.run_curves import MEANS_KEPT, RARE, AveragedCurve, curves_of


def step(at_s: float, learner: str, tokens: int, loss: float | None) -> dict[str, object]:
    told = {"kind": "step", "at_s": at_s, "learner": learner}
    return {**told, "run_tokens": tokens, "loss_smoothed": loss}


def happening(at_s: float, event: str, name: str = "a") -> dict[str, object]:
    return {"kind": "event", "at_s": at_s, "event": event, "name": name, "run_tokens": int(at_s)}


def evaluation(at_s: float, tokens: int, **figures: float | None) -> dict[str, object]:
    return {"kind": "evaluation", "at_s": at_s, "clock": 1.0, "tokens": tokens, **figures}


ROWS = [
    step(1.0, "a", 10, 4.0),
    {"kind": "merge", "at_s": 1.5, "merges": 1},
    step(2.0, "b", 20, 2.0),
    step(3.0, "b", 30, None),
    evaluation(3.0, 30, accuracy=0.5, share=None),
    step(4.0, "a", 40, 2.0),
    evaluation(4.0, 40, accuracy=0.75, share=3.0),
]


def run_folder(folder: Path, rows: list[dict[str, object]], name: str = "metrics.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(row, separators=(",", ":")) for row in rows]
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_a_runs_loss_is_the_mean_of_its_learners(tmp_path: Path) -> None:
    found = curves_of(run_folder(tmp_path / "run", ROWS))
    assert found.loss.all() == [(10, 1.0, 4.0), (20, 2.0, 3.0), (40, 4.0, 2.0)]
    assert found.evaluations["accuracy"].all() == [(30, 3.0, 0.5), (40, 4.0, 0.75)]
    assert found.evaluations["share"].all() == [(40, 4.0, 3.0)]


def test_times_go_on_over_restarts_and_files_that_were_turned_over(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", ROWS, "metrics.1.jsonl")
    run_folder(folder, [step(0.5, "c", 50, 1.0), step(1.0, "c", 60, 0.5)])
    found = curves_of(folder)
    assert found.loss.all()[-2:] == [(50, 4.5, 1.0), (60, 5.0, 0.5)]


def test_a_line_may_be_half_written(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", ROWS)
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text() + '{"kind": "st')
    assert len(curves_of(folder).loss.all()) == 3
    path.write_text(path.read_text() + "\n" + json.dumps(step(1.0, "a", 50, 1.0)) + "\n")
    assert curves_of(folder).loss.all()[2:] == [(40, 4.0, 2.0), (50, 5.0, 1.0)]


def test_metrics_without_a_row_are_named(tmp_path: Path) -> None:
    path = run_folder(tmp_path / "run", []) / "metrics.jsonl"
    path.write_text('\n{"kind": "st\n{"kind"\n{"kind": "step", "at_s": 1}\n')
    damaged = curves_of(path.parent).damaged
    assert damaged == f"no line of {path} is a row of metrics: 'learner' is missing or wrong"


def test_totals_are_sums_over_learners(tmp_path: Path) -> None:
    sums = {"bytes_up": 10, "bytes_down": 20}
    rows = [
        {**step(1.0, "a", 10, 4.0), **sums, "stepping_s": 1.0},
        {**step(2.0, "b", 30, 4.0), **sums, "stepping_s": 0.5},
        {**step(4.0, "a", 50, 4.0), **sums, "bytes_up": 15, "stepping_s": 3.0},
    ]
    totals = curves_of(run_folder(tmp_path / "run", rows)).totals
    assert totals["stepping_s"].all() == [(10, 1.0, 1.0), (30, 2.0, 1.5), (50, 4.0, 3.5)]
    assert totals["allocated_s"].all() == [(10, 1.0, 1.0), (30, 2.0, 3.0), (50, 4.0, 7.0)]
    assert [value for *_, value in totals["bytes_up"].all()] == [10, 20, 25]
    assert [value for *_, value in totals["tokens"].all()] == [10, 30, 50]


def test_whatever_steps_and_merges_tell_is_a_figure(tmp_path: Path) -> None:
    merge = {"kind": "merge", "at_s": 2.0, "merges": 1, "run_tokens": 20, "staleness": [0, 2]}
    told = {"note": "x", "staleness": 9.0, "metrics": {"accuracy": 0.5, "loss": 1.0}}
    rows = [{**step(1.0, "a", 10, 4.0), **told}, {**merge, "cosine": None}]
    means = curves_of(run_folder(tmp_path / "run", rows)).means
    assert [*means] == ["accuracy", "staleness"]
    assert means["accuracy"].all() == [(10, 1.0, 0.5)]
    assert means["staleness"].all() == [(20, 2.0, 0.0), (20, 2.0, 2.0)]


@pytest.mark.parametrize("values", [MEANS_KEPT - 1, MEANS_KEPT, 1000, 10_007])
def test_means_keep_what_they_sum_up(values: int) -> None:
    means = AveragedCurve()
    for number in range(values):
        means.add(number, number, number % 2)
    points = means.all()
    assert len(points) <= MEANS_KEPT
    assert points[-1].tokens > 0.98 * (values - 1)
    if means.every > 1:
        assert {point.value for point in points[:-1]} == {0.5}


def test_of_a_long_file_parts_are_read_and_all_that_is_rare(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for number in range(20_000):
        rows.append(step(float(number), f"learner-{number % 3}", number, 1.0))
        if number % 1000 == 500:
            rows += [evaluation(number + 0.1, number, bits=2.0), happening(number + 0.2, "killed")]
    folder = run_folder(tmp_path / "run", rows)
    assert RARE in (folder / "metrics.jsonl").read_bytes()
    whole, parts = curves_of(folder), curves_of(folder, 2**17)
    for found in (whole, parts):
        assert [x for x, *_ in found.evaluations["bits"].all()] == [*range(500, 20_000, 1000)]
        assert found.loss.all() == sorted(found.loss.all())
    assert len(parts.learners["learner-0"]) < len(whole.learners["learner-0"]) / 4
    assert parts.loss.all()[-1][0] > 18_000
