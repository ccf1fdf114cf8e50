"""The table of fleets: goodput next to what was published, and what it cost."""

from collections.abc import Mapping, Sequence
from math import sqrt

from islands.lab.experiments.cells import HOUR_S, Played
from islands.lab.experiments.paper import Row, published
from islands.run.records.formatting import count, json_text, markdown_table

Fleets = Mapping[tuple[Row, float], Played]
"""What was played, by row and number of chips."""


def table(found: Fleets) -> str:
    """The tables as Markdown: goodput, then the other figures of each fleet."""
    chips = list(dict.fromkeys(number for _, number in found))
    rows = list(dict.fromkeys(row for row, _ in found))
    compared = any(published_of(found, *key) is not None for key in found)
    head = ["goodput, %", *(f"{count(number)} chips" for number in chips)]
    lines = [
        [_name(row, compared=compared), *(_goodput(found, row, number) for number in chips)]
        for row in rows
    ]
    told = [markdown_table([head, *lines]), *(_differences(found) if compared else [])]
    return "\n".join([*told, "", markdown_table([*_details(found)])]) + "\n"


def _name(row: Row, *, compared: bool) -> str:
    if not compared:
        return row.name
    return f"{row.name} ({'calibrated' if row.calibrated else 'predicted'})"


def _goodput(found: Fleets, row: Row, chips: float) -> str:
    theirs = published_of(found, row, chips)
    ours = f"{100 * found[row, chips].figures.goodput:.1f}"
    return ours if theirs is None else f"{ours} ({theirs:.0f})"


def _differences(found: Fleets) -> list[str]:
    """Sentences on how far the fleets are from what was published."""
    elastic, rigid = differences(found, elastic=True), differences(found, elastic=False)
    predicted = differences(found, elastic=True, calibrated=False)
    lines = ["", "In brackets: published for Decoupled DiLoCo (arXiv 2604.21428)."]
    for name, some in (
        ("All elastic fleets", elastic),
        ("Of these, the predictions", predicted),
        ("Not elastic", rigid),
    ):
        if some:
            worst = max(some, key=abs)
            lines.append(f"{name}: root mean square {rms(some):.2f}, worst {worst:+.1f} points.")
    return lines


def differences(found: Fleets, *, elastic: bool, calibrated: bool | None = None) -> list[float]:
    """Return goodput less what was published, in percent, of the fleets that it was published for.

    Args:
        found: what was played.
        elastic: which fleets.
        calibrated: whether only those that constants were fitted to, or only those they were not.
    """
    return [
        100 * played.figures.goodput - theirs
        for (row, chips), played in found.items()
        if row.elastic is elastic
        and calibrated in (None, row.calibrated)
        and (theirs := published_of(found, row, chips)) is not None
    ]


def rms(numbers: Sequence[float]) -> float:
    """Return the root of the mean square."""
    return sqrt(sum(number**2 for number in numbers) / len(numbers))


def published_of(found: Fleets, row: Row, chips: float) -> float | None:
    """Return what was published of such a fleet, in percent; None if nothing was."""
    return published(row, chips, found[row, chips].cell.each.mtbi_s)


def json_of(found: Fleets) -> bytes:
    """Return the figures of every fleet as JSON, with what was published next to them."""
    rows = [
        {
            "learners": row.learners,
            "elastic": row.elastic,
            "chips": chips,
            "goodput": played.figures.goodput,
            "goodput_published": None if theirs is None else theirs / 100,
            "calibrated": row.calibrated,
            "goodput_without_actors": played.plain.goodput,
            "uptime": played.figures.uptime,
            "yield": played.training.yield_share,
            "participation": played.training.participation,
            "merges": len(played.training.merges_s),
            "hours": played.cell.measured_s / HOUR_S,
            "chip_hours_per_1e9_tokens": played.training.chip_hours,
            "link_bytes_per_token": played.training.link_bytes,
        }
        for (row, chips), played in found.items()
        for theirs in (published_of(found, row, chips),)
    ]
    return json_text(rows)


def _details(found: Fleets) -> list[list[str]]:
    head = [
        *("fleet", "chips", "goodput", "no actors", "uptime", "yield", "took part"),
        *("merges per h", "chip hours per 1e9 tokens", "link bytes per token"),
    ]
    lines = [head]
    for (row, chips), played in found.items():
        figures, training = played.figures, played.training
        lines.append(
            [
                row.name,
                count(chips),
                f"{figures.goodput:.4f}",
                f"{played.plain.goodput:.4f}",
                f"{figures.uptime:.4f}",
                f"{training.yield_share:.3f}",
                f"{training.participation:.3f}",
                f"{HOUR_S * len(training.merges_s) / played.cell.measured_s:.1f}",
                f"{training.chip_hours:.4g}",
                f"{training.link_bytes:.3g}",
            ]
        )
    return lines
