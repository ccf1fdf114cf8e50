"""One picture of several runs: loss and evaluation, over tokens and over time."""

from collections.abc import Mapping

from islands.run.records.drawing import LETTER_ROWS, Canvas, Point, text_width
from islands.run.records.figures import Curve
from islands.run.records.picture import (
    CHART_HEIGHT,
    INK,
    LABEL_WIDTH,
    LINES,
    MARGIN,
    ROW_HEIGHT,
    SCALE,
    WIDTH,
    Scale,
    axes,
    curve,
)
from islands.run.records.run_curves import RunCurves, Series

Points = list[Point]


def plot(runs: Mapping[str, RunCurves], metric: str | None) -> bytes:
    """Draw the runs, and return a PNG file.

    Args:
        runs: the curves of each run, by the name that the legend shows.
        metric: the figure of the evaluation that is drawn; None if no run has any.
    """
    charts: list[tuple[str, dict[str, Series]]] = [
        ("training loss", {name: run.loss for name, run in runs.items()})
    ]
    if metric is not None:
        found = {name: run.evaluations.get(metric, Series()) for name, run in runs.items()}
        charts.append((metric, found))
    canvas = Canvas(WIDTH, 2 * MARGIN + CHART_HEIGHT * len(charts) + ROW_HEIGHT * len(runs))
    for row, (title, series) in enumerate(charts):
        top = MARGIN + CHART_HEIGHT * row
        over_tokens = [one.tokens.all() for one in series.values()]
        over_time = [one.seconds.all() for one in series.values()]
        _chart(canvas, (0.0, top), f"{title} over tokens", over_tokens, time=False)
        _chart(canvas, (WIDTH / 2, top), f"{title} over time", over_time, time=True)
    top = MARGIN + CHART_HEIGHT * len(charts)
    for index, name in enumerate(runs):
        y = top + ROW_HEIGHT * index
        colour = LINES[index % len(LINES)]
        canvas.box((MARGIN, y), (MARGIN + LETTER_ROWS * SCALE, y + LETTER_ROWS * SCALE), colour)
        ends = [_end(title, series[name].tokens) for title, series in charts]
        label = f"{name}: {', '.join(filter(None, ends))}"
        canvas.text((MARGIN + text_width("nn", SCALE), y), label, INK, SCALE)
    return canvas.png()


def _chart(canvas: Canvas, corner: Point, title: str, lines: list[Points], *, time: bool) -> None:
    """Draw the lines of all runs on common scales."""
    left, right = corner[0] + LABEL_WIDTH, corner[0] + WIDTH / 2 - MARGIN
    top, bottom = corner[1] + MARGIN + 8, corner[1] + CHART_HEIGHT - 2 * MARGIN
    canvas.text((left, corner[1]), title, INK, SCALE)
    points = [point for line in lines for point in line]
    if not points:
        canvas.text((left, top), "none", INK, SCALE)
        return
    across = Scale.of([0.0, *(x for x, _ in points)], left, right, y=False)
    up = Scale.of([y for _, y in points], bottom, top, y=True)
    axes(canvas, across, up, unit="time" if time else "tokens")
    for index, line in enumerate(lines):
        if line:
            curve(canvas, across, up, line, LINES[index % len(LINES)])


def _end(title: str, over_tokens: Curve) -> str:
    points = over_tokens.all()
    return f"{title} {points[-1][1]:.4g}" if points else ""
