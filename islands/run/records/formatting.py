"""Numbers and times as people read them, on a screen and in a picture."""

from collections.abc import Sequence

import msgspec

from islands.run.records.figures import RunFigures

LONG_S = 100.0
ABOUT = ("at_s", "clock", "tokens", "took_s")
"""Keys of an evaluation's row that are not figures of the task."""


def metric(figures: RunFigures) -> tuple[str, list[float]]:
    """Return name and values of the first figure in the task's evaluations; "" if there is none."""
    rows = [{k: v for k, v in row.items() if k not in ABOUT} for row in figures.evaluations]
    name = next((key for row in rows for key in row), "")
    return name, [row[name] for row in rows if name in row]


def duration(seconds: float) -> str:
    """Format a time as people write it: 85 ms, 12.3 s, 5:03, 2:05:03, 3 d 2:05."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < LONG_S:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours}:{minutes:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count(number: float) -> str:
    """Format a number so that it fits a column: 1,234, then 56.7 k, 8.9 M, …."""
    if number < 100_000:  # noqa: PLR2004  five digits are read at a glance
        return f"{number:,.0f}"
    for unit in ("k", "M", "G"):
        number /= 1000
        if number < 1000:  # noqa: PLR2004  the next unit begins there
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} T"


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Format lines of cells as a table of Markdown; the first one is its head."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    head, *rest = lines
    rows = (head, ["-" * width for width in widths], *rest)
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows)


def json_text(told: object) -> bytes:
    """Return figures as the text of a JSON file, indented."""
    return msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n"
