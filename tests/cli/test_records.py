"""`islands plot`, `cost` and `logs`: what commands make of the folder of a run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.cli.records import line_of
from islands.run.records.pictures import COLOURS, plot
from islands.run.records.run_curves import curves_of
from tests.page.run_folder import make_run
from tests.run.test_run_curves import ROWS, run_folder, step
from tests.run.test_run_pictures import drawn, pixels_of


def test_each_run_has_a_colour_in_every_panel(tmp_path: Path) -> None:
    one = curves_of(run_folder(tmp_path / "one", ROWS))
    two = curves_of(run_folder(tmp_path / "two", [step(1.0, "a", 5, 3.0), step(2.0, "a", 40, 1.0)]))
    pixels = pixels_of(plot({"one": one, "two": two}))
    bottom = 4.2 * 250
    for index, charts in ((0, 4), (1, 2)):
        places = [(y, x) for y, x in drawn(pixels, COLOURS[index]) if y < bottom]
        assert len({(y >= bottom / 2, x >= 900) for y, x in places}) == charts


def test_the_command_writes_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run_folder(tmp_path / "same", ROWS)
    (tmp_path / "other").mkdir()
    two = run_folder(tmp_path / "other" / "same", ROWS)
    out, vectors = tmp_path / "both.png", tmp_path / "one.svg"
    assert main(["plot", str(one), str(two), str(one), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: {one}, {two}\n"
    pixels_of(out.read_bytes())
    for words in (["--metric", "share"], ["--figures", "loss", "--over", "tokens"]):
        assert main(["plot", str(one), *words, "--out", str(vectors)]) == 0
        assert capsys.readouterr().out == f"{vectors}: same\n"
        assert b"<svg" in vectors.read_bytes()


def test_the_command_prints_a_bill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, prices = str(make_run(tmp_path / "run")), tmp_path / "prices.yaml"
    assert main(["cost", run]) == 0
    assert "Without prices there is no money" in capsys.readouterr().out
    prices.write_text("{host_hour: {other: 3600}, learners: {'*': {region: x}}}")
    assert main(["cost", run, "--prices", str(prices)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    assert main(["cost", run, "--prices", str(prices), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    # of twenty seconds, one was a member from the first on, and the other from the second
    assert told["whole"]["cost"] == pytest.approx(19.0 + 18.0)


def test_entries_of_all_processes_are_printed_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", str(make_run(tmp_path / "run", 3))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:18] for line in lines] == sorted(line[:18] for line in lines)
    assert {line.split()[2] for line in lines} == {"supervisor", "syncer", "learner-0", "learner-1"}
    assert " supervisor  admitted name=learner-0 role=learner " in lines[0]
    merged = next(line for line in lines if " merged " in line)
    assert 'participants=["learner-0","learner-1"]' in merged


def test_a_name_from_afar_cannot_steer_the_terminal() -> None:
    line = line_of(0.0, b'{"t":0.0,"actor":"a","kind":"left","name":"\\u001b[2J","reason":"a b"}')
    assert line.endswith(r' a           left name=\x1b[2J reason="a b"')


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("plot", "folders is empty"),
        ("plot x", "there is no folder x"),
        ("plot run --out a.jpg", "out is a.jpg; it must be a .png or .svg file"),
        ("plot run --out none/a.png", "none/a.png cannot be written: No such file"),
        ("plot run --metric loss", "metric is loss; the runs' evaluations have accuracy, share"),
        ("plot run --figures speed", "figures has speed; the runs have loss, evaluation"),
        ("plot run --over steps", "over is steps; it must be one of tokens, time, or several"),
        (
            "plot run --figures loss,evaluation,loss,loss,loss,loss",
            "figures and over make 12 panels, and a picture has room for 10; name fewer",
        ),
        ("plot damaged", "no line of damaged/metrics.jsonl is a row of metrics"),
        ("plot empty", "has nothing to draw yet: no learner has stepped"),
        ("plot nothing", "is not the folder of a run: it has no metrics.jsonl"),
        ("cost", "folder is not set; name the folder of a run"),
        ("cost none", "there is no folder none"),
        ("cost bill --prices none.yaml", "none.yaml cannot be read: No such file"),
        ("cost bill --prices wrong.yaml", "wrong.yaml: Object contains unknown field `prices`"),
        ("cost bill --prices few.yaml", "few.yaml: nobody tells where learner-0 ran"),
        ("cost bill --prices some.yaml", "some.yaml: there is no price of an hour of a host in x"),
        ("logs", "folder is not set; name the folder of a run, such as runs/mine"),
        ("logs none", "there is no folder none"),
        ("logs nothing", "nothing is not the folder of a run: it has no tape.jsonl"),
    ],
)
def test_a_mistake_is_one_sentence(
    line: str, sentence: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    run_folder(tmp_path / "run", ROWS)
    run_folder(tmp_path / "empty", [])
    (tmp_path / "nothing").mkdir()
    (run_folder(tmp_path / "damaged", []) / "metrics.jsonl").write_text("?\n")
    if line.startswith("cost bill"):
        make_run(tmp_path / "bill")
    (tmp_path / "wrong.yaml").write_text("prices: {}\n")
    (tmp_path / "few.yaml").write_text("host_hour: {other: 1}\n")
    (tmp_path / "some.yaml").write_text("learners: {'*': {region: x}}\n")
    assert sentence in refused(*line.split())
    assert not list(tmp_path.glob("*.png"))
