"""The panels of a plot: which figures, lines, marks, scales and units are drawn."""

from pathlib import Path

import pytest

from islands.protocol.errors import UserError
from islands.run.records.panels import MARKS_MOST, panels_of
from islands.run.records.run_curves import RunCurves, curves_of
from islands.settings.commands import Axis, Over
from tests.run.metric_rows import ROWS, happening, run_folder, step

TOKENS, TIME = (Over.TOKENS,), (Over.TIME,)


def run(folder: Path, rows: list[dict[str, object]]) -> RunCurves:
    """The curves of these rows."""
    return curves_of(run_folder(folder, rows))


def working(seconds: int = 100) -> list[dict[str, object]]:
    """Two learners, of which one takes no step in the second half."""
    rows: list[dict[str, object]] = []
    for second in range(seconds):
        spent = {"stepping_s": float(second), "bytes_up": 5e6 * second, "bytes_down": 0}
        rows.append({**step(float(second), "a", 30_000 * second, 2.0), **spent})
        if second < seconds / 2:
            rows.append({**step(second + 0.1, "b", 30_000 * second, 2.0), **spent})
    return rows


def test_loss_and_evaluation_are_drawn_by_default(tmp_path: Path) -> None:
    """Over tokens and over time; a run that has one of them alone is in its panels alone."""
    runs = [run(tmp_path / "one", ROWS), run(tmp_path / "two", [step(1.0, "a", 5, 3.0)])]
    panels = panels_of(runs)
    assert [(panel.title, panel.over) for panel in panels] == [
        *(("training loss", Over.TOKENS), ("training loss", Over.TIME)),
        *(("accuracy", Over.TOKENS), ("accuracy", Over.TIME)),
    ]
    assert [[one.run for one in panel.runs] for panel in panels] == [[0, 1], [0, 1], [0], [0]]
    assert panels[2].runs[0].lines == [[(30, 0.5), (40, 0.75)]]
    assert panels_of(runs, over=TOKENS, metric="share")[1].points == [(40, 3.0)]


def test_a_run_without_a_loss_shows_what_it_has(tmp_path: Path) -> None:
    """All losses are no numbers, and nobody evaluated."""
    rows = [step(float(second), "a", second, None) for second in range(20)]
    assert [panel.figure for panel in panels_of([run(tmp_path / "run", rows)], over=TIME)] == [
        "tokens_per_s"
    ]


def test_rates_are_those_of_a_stretch(tmp_path: Path) -> None:
    """Speed and traffic have one unit along an axis; goodput falls where a learner stands still."""
    figures = ("tokens_per_s", "traffic", "goodput")
    speed, traffic, goodput = panels_of([run(tmp_path / "run", working())], figures, TIME)
    assert (speed.title, speed.unit) == ("tokens per second (thousands)", 1e3)
    assert {round(y, -3) for _, y in speed.points} == {30_000}
    assert (traffic.title, traffic.note) == ("traffic (MB/s)", ": sent, received (thin line)")
    sent, received = traffic.runs[0].lines
    assert max(y for _, y in sent) == pytest.approx(1e7, rel=0.1)
    assert {y for _, y in received} == {0.0}
    assert goodput.points[1][1] > 0.95
    assert goodput.points[-1][1] == pytest.approx(0.5, abs=0.03)


def test_marks_lie_on_the_line(tmp_path: Path) -> None:
    """Of many of a kind some are marked; what came before the line begins has no place on it."""
    rows = [happening(5.0, "killed"), step(10.0, "a", 10, 4.0)]
    rows += [happening(12.0, "evicted")] * 100
    rows += [happening(13.0, "unheard of"), happening(15.0, "killed"), step(20.0, "a", 20, 2.0)]
    (panel,) = panels_of([run(tmp_path / "run", rows)], over=TIME)
    marks = panel.runs[0].marks
    assert [(mark.what, mark.at) for mark in marks] == [
        ("killed", (15.0, 3.0)),
        *([("evicted", (12.0, pytest.approx(3.6)))] * MARKS_MOST),
    ]


def test_a_logarithmic_scale_has_room_for_what_is_above_zero(tmp_path: Path) -> None:
    """Points that have no place are left out; if none has one, a sentence says so."""
    runs = [run(tmp_path / "run", [step(0.0, "a", 0, 2.0), step(1.0, "a", 5, 0.0)])]
    runs[0].loss.add(10, 2.0, 1.0)
    both = (Axis.X, Axis.Y)
    assert panels_of(runs, ("loss",), TOKENS, both)[0].points == [(10, 1.0)]
    zero = [run(tmp_path / "zero", [step(1.0, "a", 5, 0.0), step(2.0, "a", 6, 0.0)])]
    with pytest.raises(UserError, match="log has y; loss has no point above 0"):
        panels_of(zero, ("loss",), TOKENS, (Axis.Y,))


@pytest.mark.parametrize(
    ("figures", "metric", "sentence"),
    [
        (("speed",), None, "figures has speed; the runs have loss, evaluation"),
        (("goodput",), None, "figures has goodput; the runs have loss, evaluation"),
        ((), "loss", "metric is loss; the runs' evaluations have accuracy, share"),
    ],
)
def test_what_no_run_has_is_refused(
    figures: tuple[str, ...], metric: str | None, sentence: str, tmp_path: Path
) -> None:
    """The sentence lists what there is."""
    with pytest.raises(UserError, match=sentence):
        panels_of([run(tmp_path / "run", ROWS)], figures, metric=metric)
