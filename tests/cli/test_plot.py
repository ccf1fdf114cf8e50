"""`islands plot`: the curves of several runs, read from their metrics."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.protocol.errors import UserError
from islands.run.records.charts import COLOURS
from islands.run.records.run_curves import curves_of
from islands.run.records.run_pictures import plot
from tests.run.test_run_pictures import drawn, pixels_of


def step(at_s: float, learner: str, tokens: int, loss: float | None) -> dict[str, object]:
    """A row of a learner's step."""
    told = {"kind": "step", "at_s": at_s, "learner": learner}
    return {**told, "run_tokens": tokens, "loss_smoothed": loss}


def evaluation(at_s: float, tokens: int, **figures: float | None) -> dict[str, object]:
    """A row of an evaluation."""
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
    """A folder with these metrics."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_runs_loss_is_the_mean_of_its_learners(tmp_path: Path) -> None:
    """Over tokens and over seconds; a loss that is no number leaves the last one in place."""
    found = curves_of(run_folder(tmp_path / "run", ROWS))
    assert found.loss.tokens.all() == [(10, 4.0), (20, 3.0), (40, 2.0)]
    assert found.loss.seconds.all() == [(1.0, 4.0), (2.0, 3.0), (4.0, 2.0)]
    assert found.evaluations["accuracy"].tokens.all() == [(30, 0.5), (40, 0.75)]
    assert found.evaluations["share"].seconds.all() == [(4.0, 3.0)]


def test_times_go_on_over_restarts_and_files_that_were_turned_over(tmp_path: Path) -> None:
    """The hub's second start counts from zero, with learners of its own."""
    folder = run_folder(tmp_path / "run", ROWS, "metrics.1.jsonl")
    run_folder(folder, [step(0.5, "c", 50, 1.0), step(1.0, "c", 60, 0.5)])
    found = curves_of(folder)
    assert found.loss.seconds.all()[-2:] == [(4.5, 1.0), (5.0, 0.5)]
    assert found.loss.tokens.all()[-2:] == [(50, 1.0), (60, 0.5)]


def test_a_line_may_be_half_written(tmp_path: Path) -> None:
    """It is left out: the last one of a run that goes on, and one at which a hub was killed."""
    folder = run_folder(tmp_path / "run", ROWS)
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text() + '{"kind": "st')
    assert len(curves_of(folder).loss.tokens.all()) == 3
    path.write_text(path.read_text() + "\n" + json.dumps(step(1.0, "a", 50, 1.0)) + "\n")
    assert curves_of(folder).loss.tokens.all()[2:] == [(40, 2.0), (50, 1.0)]


def test_metrics_without_a_row_are_told_by_their_line(tmp_path: Path) -> None:
    """The first one that cannot be read, or is no row."""
    path = run_folder(tmp_path / "run", []) / "metrics.jsonl"
    folder = path.parent
    path.write_text('\n{"kind": "st\n{"kind"\n')
    with pytest.raises(UserError, match=r"line 2 of .*metrics.jsonl cannot be read, nor can any"):
        curves_of(folder)
    path.write_text('{"kind": "step", "at_s": 1}\n')
    with pytest.raises(UserError, match=r"line 1 of .* is no row of metrics: 'loss_smoothed'"):
        curves_of(folder)


def test_each_run_has_a_colour_in_every_chart(tmp_path: Path) -> None:
    """Four charts of two runs; the second, which was never evaluated, is only in those of loss."""
    one = curves_of(run_folder(tmp_path / "one", ROWS))
    two = curves_of(run_folder(tmp_path / "two", [step(1.0, "a", 5, 3.0), step(2.0, "a", 40, 1.0)]))
    pixels = pixels_of(plot({"one": one, "two": two}, "accuracy"))
    bottom = 2 * 3.6 * 150
    for index, charts in ((0, 4), (1, 2)):
        places = [(y, x) for y, x in drawn(pixels, COLOURS[index]) if y < bottom]
        quarters = {(y >= bottom / 2, x >= 900) for y, x in places}
        assert len(quarters) == charts
    assert pixels_of(plot({"one": one}, None)).shape[0] < pixels.shape[0]


def test_the_command_writes_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of one name are told apart by their paths, and a run named twice is drawn once."""
    one = run_folder(tmp_path / "same", ROWS)
    (tmp_path / "other").mkdir()
    two = run_folder(tmp_path / "other" / "same", ROWS)
    out = tmp_path / "both.png"
    assert main(["plot", str(one), str(two), str(one), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: {one}, {two}\n"
    pixels_of(out.read_bytes())
    assert main(["plot", str(one), "--metric", "share", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: same\n"
    out = tmp_path / "one.svg"
    assert main(["plot", str(one), "--out", str(out)]) == 0
    assert b"<svg" in out.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "folders is empty"),
        (("x",), "there is no folder x"),
        (("run", "--out", "a.jpg"), "out is a.jpg; it must be a .png or .svg file"),
        (("run", "--out", "none/a.png"), "none/a.png cannot be written: No such file"),
        (("run", "--metric", "loss"), "metric is loss; the runs' evaluations have accuracy, share"),
        (("empty",), "has nothing to draw yet: no learner has stepped"),
        (("nothing",), "is not the folder of a run: it has no metrics.jsonl"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    """And no picture is made."""
    run_folder(tmp_path / "run", ROWS)
    run_folder(tmp_path / "empty", [])
    (tmp_path / "nothing").mkdir()
    assert sentence in refused("plot", *arguments)
    assert not list(tmp_path.glob("*.png"))
