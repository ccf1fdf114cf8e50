"""The plots: goodput against chips for each number of learners, and what one fleet did in time."""

from islands.cluster.drawing import LETTER_ROWS, Canvas, Colour, text_width
from islands.cluster.picture import (
    BAR_HEIGHT,
    INK,
    LABEL_WIDTH,
    LINES,
    MARGIN,
    ROW_HEIGHT,
    ROWS_MOST,
    SCALE,
    STATES,
    WIDTH,
    Scale,
    axes,
    curve,
)
from islands.goodput.cells import Played
from islands.goodput.paper import published
from islands.goodput.table import Fleets

HEIGHT = 520
LEGEND_ROW = 22
TIMELINE_S = 3600.0
"""Of a fleet, from the time when it is first measured."""

STEPPING, STALLED, MERGED = STATES["stepping"], STATES["away"], LINES[0]


def plot(found: Fleets) -> bytes:
    """Goodput against chips, a line for each row and a cross for what was published; a PNG file."""
    rows = list(dict.fromkeys(row for row, _ in found))
    chips = list(dict.fromkeys(number for _, number in found))
    canvas = Canvas(WIDTH, HEIGHT + LEGEND_ROW * (len(rows) + 1))
    canvas.text((MARGIN, MARGIN / 2), "goodput, % of chip-time", INK, SCALE + 1)
    across = Scale.of([0.0, *chips], LABEL_WIDTH, WIDTH - MARGIN, y=False)
    up = Scale(0.0, 100.0, HEIGHT - 3 * MARGIN, 3 * MARGIN)
    axes(canvas, across, up, unit="chips")
    for index, row in enumerate(rows):
        colour = LINES[index % len(LINES)]
        points = [(number, 100 * found[row, number].figures.goodput) for number in chips]
        curve(canvas, across, up, points, colour)
        for number in chips:
            theirs = published(row, number)
            if theirs is not None:
                _cross(canvas, (across.at(number), up.at(theirs)), colour)
        _legend(canvas, index, colour, row.name)
    if any(published(*key) is not None for key in found):
        canvas.text((MARGIN, HEIGHT + LEGEND_ROW * len(rows)), "crosses: published", INK, SCALE)
    return canvas.png()


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
    x = left
    for colour, text in ((STEPPING, "steps"), (STALLED, "stalls"), (MERGED, "merge")):
        place = canvas_bottom = bottom + 3 * MARGIN
        canvas.box((x, place), (x + BAR_HEIGHT, canvas_bottom + BAR_HEIGHT), colour)
        canvas.text((x + 2 * BAR_HEIGHT, place), text, INK, SCALE)
        x += text_width(text, SCALE) + 5 * BAR_HEIGHT
    return canvas.png()


def _cross(canvas: Canvas, at: tuple[float, float], colour: Colour) -> None:
    x, y = at
    canvas.line([(x - 5, y - 5), (x + 5, y + 5)], colour, 2.0)
    canvas.line([(x - 5, y + 5), (x + 5, y - 5)], colour, 2.0)


def _legend(canvas: Canvas, index: int, colour: Colour, text: str) -> None:
    y = HEIGHT + LEGEND_ROW * index
    canvas.box((MARGIN, y), (MARGIN + LETTER_ROWS * SCALE, y + LETTER_ROWS * SCALE), colour)
    canvas.text((MARGIN + text_width("nn", SCALE), y), text, INK, SCALE)
