"""`islands plot`: figures of several runs in one picture."""

from collections.abc import Callable
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.run.records.pictures import COLOURS, plot
from islands.run.records.run_curves import curves_of
from tests.run.metric_rows import ROWS, run_folder, step
from tests.run.test_run_pictures import drawn, pixels_of


def test_each_run_has_a_colour_in_every_panel(tmp_path: Path) -> None:
    one = curves_of(run_folder(tmp_path / "one", ROWS))
    two = curves_of(run_folder(tmp_path / "two", [step(1.0, "a", 5, 3.0), step(2.0, "a", 40, 1.0)]))
    pixels = pixels_of(plot({"one": one, "two": two}))
    bottom = 4.2 * 250
    for index, charts in ((0, 4), (1, 2)):
        places = [(y, x) for y, x in drawn(pixels, COLOURS[index]) if y < bottom]
        quarters = {(y >= bottom / 2, x >= 900) for y, x in places}
        assert len(quarters) == charts


def test_the_command_writes_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run_folder(tmp_path / "same", ROWS)
    (tmp_path / "other").mkdir()
    two = run_folder(tmp_path / "other" / "same", ROWS)
    out = tmp_path / "both.png"
    assert main(["plot", str(one), str(two), str(one), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: {one}, {two}\n"
    pixels_of(out.read_bytes())
    assert main(["plot", str(one), "--metric", "share", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: same\n"
    line = ["plot", str(one), "--figures", "loss", "--over", "tokens"]
    assert main([*line, "--out", str(out)]) == 0
    capsys.readouterr()
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
        (("run", "--figures", "speed"), "figures has speed; the runs have loss, evaluation"),
        (("run", "--over", "steps"), "over is steps; it must be one of tokens, time, or several"),
        (
            ("run", "--figures", "loss,evaluation,loss,loss,loss,loss"),
            "figures and over make 12 panels, and a picture has room for 10; name fewer",
        ),
        (("damaged",), "no line of damaged/metrics.jsonl is a row of metrics"),
        (("empty",), "has nothing to draw yet: no learner has stepped"),
        (("nothing",), "is not the folder of a run: it has no metrics.jsonl"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    run_folder(tmp_path / "run", ROWS)
    run_folder(tmp_path / "empty", [])
    (tmp_path / "nothing").mkdir()
    (run_folder(tmp_path / "damaged", []) / "metrics.jsonl").write_text("?\n")
    assert sentence in refused("plot", *arguments)
    assert not list(tmp_path.glob("*.png"))
