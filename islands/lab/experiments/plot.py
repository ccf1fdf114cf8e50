"""The plots: goodput against chips for each number of learners, and what one fleet did in time."""

from islands.lab.experiments.cells import Played
from islands.lab.experiments.chart import Line, chart
from islands.lab.experiments.table import Fleets, published_of
from islands.run.records.drawing import Canvas, text_width
from islands.run.records.picture import (
    BAR_HEIGHT,
    INK,
    LEGEND_ROW,
    LINES,
    MARGIN,
    ROW_HEIGHT,
    ROWS_MOST,
    SCALE,
    STATES,
    WIDTH,
    Scale,
    axes,
)

TIMELINE_S = 3600.0
"""Of a fleet, from the time when it is first measured."""

STEPPING, STALLED, MERGED = STATES["stepping"], STATES["away"], LINES[0]


def plot(found: Fleets) -> bytes:
    """Goodput against chips, a line for each row and a cross for what was published; a PNG file."""
    rows = list(dict.fromkeys(row for row, _ in found))
    chips = list(dict.fromkeys(number for _, number in found))
    lines = [
        Line(
            row.name,
            [(number, 100 * found[row, number].figures.goodput) for number in chips],
            [
                (number, theirs)
                for number in chips
                if (theirs := published_of(found, row, number)) is not None
            ],
        )
        for row in rows
    ]
    return chart("goodput, % of chip-time", lines, "chips")


def timeline(played: Played) -> bytes:
    """Who stepped and who stalled in one fleet's first hour, and when it merged; a PNG file."""
    cell = played.cell
    from_s = cell.warmup_s
    until_s = min(cell.end_s, from_s + TIMELINE_S)
    names = cell.names[:ROWS_MOST]
    bottom = 4 * MARGIN + ROW_HEIGHT * (len(names) + 1)
    canvas = Canvas(WIDTH, bottom + 4 * MARGIN + LEGEND_ROW)
    told = f"{cell.chips:,.0f} chips in {cell.learners:,} learners"
    canvas.text((MARGIN, MARGIN / 2), told, INK, SCALE + 1)
    left = MARGIN + text_width("learner-0000 ", SCALE)
    across = Scale(0.0, until_s - from_s, left, WIDTH - MARGIN)
    axes(canvas, across, Scale(0.0, 1.0, bottom, bottom), unit="time")
    for index, name in enumerate(names):
        y = 3 * MARGIN + ROW_HEIGHT * index
        canvas.text((MARGIN, y), name, INK, SCALE)
        canvas.box((left, y), (across.end, y + BAR_HEIGHT), STEPPING)
        for start_s, stop_s in played.figures.stalls_s[index]:
            if start_s < until_s:
                start, stop = across.at(start_s - from_s), across.at(min(stop_s, until_s) - from_s)
                canvas.box((start, y), (max(stop, start + 1), y + BAR_HEIGHT), STALLED)
    y = 3 * MARGIN + ROW_HEIGHT * len(names)
    canvas.text((MARGIN, y), "merges", INK, SCALE)
    for at_s in played.training.merges_s:
        if at_s < until_s:
            x = across.at(at_s - from_s)
            canvas.line([(x, y), (x, y + BAR_HEIGHT)], MERGED)
    x, place = left, bottom + 3 * MARGIN
    for colour, text in ((STEPPING, "steps"), (STALLED, "stalls"), (MERGED, "merge")):
        canvas.box((x, place), (x + BAR_HEIGHT, place + BAR_HEIGHT), colour)
        canvas.text((x + 2 * BAR_HEIGHT, place), text, INK, SCALE)
        x += text_width(text, SCALE) + 5 * BAR_HEIGHT
    return canvas.png()
