"""Goodput: the share of a fleet's chip-time that failing chips leave, next to published figures.

Decoupled DiLoCo's authors published a table (arXiv 2604.21428). Their stall times are unpublished;
ours were fitted to the two rows of data-parallel training, so those rows are a calibration, and
only the rows of several learners are predictions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import NamedTuple

from islands.lab.experiments import fleet
from islands.lab.experiments.chips import Chips
from islands.lab.experiments.plot import Line, chart, markdown_table
from islands.lab.experiments.side_by_side import Experiment, Pictures
from islands.lab.settings.fleets import GoodputOptions
from islands.run.records.pictures import (
    BLACK,
    GREEN,
    VERMILION,
    encoded,
    new_figure,
    seconds_below,
)
from islands.settings.quantities import count


class Row(NamedTuple):
    """A row of the table: so many learners, elastic or not."""

    learners: int
    elastic: bool = True

    @property
    def name(self) -> str:
        if self.learners > 1:
            return f"decoupled, M={self.learners}"
        return "data-parallel, elastic" if self.elastic else "data-parallel, not elastic"

    @property
    def calibrated(self) -> bool:
        """Whether the simulation's constants were fitted to it."""
        return self.learners == 1


FleetKey = tuple[Row, float]
"""Of a fleet: its row in the table, and its number of chips."""

MTBI_S = 365 * 24 * 3600.0
CHIPS = (150e3, 300e3, 600e3, 1.2e6, 2.4e6)
PUBLISHED: dict[Row, tuple[float, ...]] = {
    Row(1, elastic=False): (72, 57, 38, 27, 18),
    Row(1): (88, 80, 69, 58, 40),
    Row(2): (94, 88, 80, 70, 54),
    Row(4): (96, 93, 89, 82, 73),
    Row(8): (98, 96, 94, 88, 80),
    Row(16): (99, 98, 96, 93, 86),
}
"""Goodput in percent by row, for `CHIPS` that fail once in `MTBI_S`."""

TIMELINE_S = 3600.0
"""Of a fleet, from the time when it is first measured."""
ROWS_MOST, ROW_INCHES, AROUND_INCHES = 32, 0.17, 1.1
BAR_HEIGHT = 0.7
SHORTEST_SHARE = 1 / 2_000
"""A stall is drawn at least so long, as a share of the timeline, so that it is seen."""

LEARNER_HOURS, HOURS_LEAST = 24.0, 2.0
"""Measured of each fleet by default: the failures of all of its learners are counted together."""


@dataclass(frozen=True, slots=True)
class ComparedFleet(fleet.FleetResult):
    """A fleet that was played by the actors, and by the event model alone."""

    plain: fleet.Figures = field(kw_only=True)


Fleets = Mapping[FleetKey, ComparedFleet]


def rows_of(options: GoodputOptions) -> list[Row]:
    if options.table is not None:
        return list(PUBLISHED)
    rows = [Row(learners) for learners in dict.fromkeys(options.learners)]
    return [Row(1, elastic=False), *rows] if options.not_elastic else rows


def cells_of(options: GoodputOptions) -> dict[FleetKey, fleet.FleetRun]:
    chips = CHIPS if options.table is not None else tuple(dict.fromkeys(options.chips))
    return {(row, count): _cell(options, row, count) for row in rows_of(options) for count in chips}


def _cell(options: GoodputOptions, row: Row, chips: float) -> fleet.FleetRun:
    hours = options.hours or max(HOURS_LEAST, LEARNER_HOURS / row.learners)
    return fleet.FleetRun(
        groups=(fleet.Group(row.learners),),
        elastic=row.elastic,
        each=Chips(
            chips / row.learners,
            slice_chips=options.slice_chips,
            mtbi_s=options.mtbi_days * 24 * fleet.HOUR_S,
            stall_s=options.stall_s,
            return_s=options.return_s,
            rejoin_every_s=options.rejoin_every_s,
            rejoin_stall_s=options.rejoin_stall_s,
            restart_s=options.restart_s,
        ),
        step_s=options.step_s,
        noise=options.noise,
        chip_tokens=options.chip_tokens,
        parameters=options.parameters,
        link=fleet.Link(options.latency_s, options.gbit_s),
        settings=replace(options.run, seed=options.seed),
        warmup_s=options.warmup_h * fleet.HOUR_S,
        measured_s=hours * fleet.HOUR_S,
        seed=options.seed,
    )


def play_both(cell: fleet.FleetRun) -> ComparedFleet:
    played = fleet.play(cell)
    return ComparedFleet(cell, played.figures, played.training, plain=fleet.play_alone(cell))


def published_of(fleets: Fleets, row: Row, chips: float) -> float | None:
    """Return the published goodput of such a fleet, in percent; None if there is none."""
    mtbi_s = fleets[row, chips].cell.each.mtbi_s
    if row not in PUBLISHED or chips not in CHIPS or mtbi_s != MTBI_S:
        return None
    return PUBLISHED[row][CHIPS.index(chips)]


def differences(fleets: Fleets, *, elastic: bool, calibrated: bool | None = None) -> list[float]:
    """Return goodput less the published one, in percent, of fleets that have a published one."""
    return [
        100 * played.figures.goodput - theirs
        for key, played in fleets.items()
        if key[0].elastic is elastic
        and calibrated in (None, key[0].calibrated)
        and (theirs := published_of(fleets, *key)) is not None
    ]


def rms(numbers: Sequence[float]) -> float:
    return sqrt(sum(number**2 for number in numbers) / len(numbers))


def table(_: GoodputOptions, fleets: Fleets) -> str:
    chips = list(dict.fromkeys(number for _, number in fleets))
    rows = list(dict.fromkeys(row for row, _ in fleets))
    compared = any(published_of(fleets, *key) is not None for key in fleets)
    lines = [["goodput, %", *(f"{count(number)} chips" for number in chips)]]
    for row in rows:
        origin = f" ({'calibrated' if row.calibrated else 'predicted'})" if compared else ""
        lines.append([row.name + origin, *(_goodput(fleets, (row, number)) for number in chips)])
    parts = [markdown_table(lines), *(_comparison(fleets) if compared else [])]
    return "\n".join([*parts, "", markdown_table(_details(fleets))]) + "\n"


def _goodput(fleets: Fleets, key: FleetKey) -> str:
    theirs = published_of(fleets, *key)
    ours = f"{100 * fleets[key].figures.goodput:.1f}"
    return ours if theirs is None else f"{ours} ({theirs:.0f})"


def _comparison(fleets: Fleets) -> list[str]:
    lines = ["", "In brackets: published for Decoupled DiLoCo (arXiv 2604.21428)."]
    for name, some in (
        ("All elastic fleets", differences(fleets, elastic=True)),
        ("Of these, the predictions", differences(fleets, elastic=True, calibrated=False)),
        ("Not elastic", differences(fleets, elastic=False)),
    ):
        if some:
            worst = max(some, key=abs)
            lines.append(f"{name}: root mean square {rms(some):.2f}, worst {worst:+.1f} points.")
    return lines


def _details(fleets: Fleets) -> list[list[str]]:
    lines = [
        [
            *("fleet", "chips", "goodput", "no actors", "uptime", "yield", "took part"),
            *("merges per h", "chip hours per 1e9 tokens", "link bytes per token"),
        ]
    ]
    for (row, chips), played in fleets.items():
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
                f"{fleet.HOUR_S * len(training.merges) / played.cell.measured_s:.1f}",
                f"{training.chip_hours:.4g}",
                f"{training.link_bytes:.3g}",
            ]
        )
    return lines


def figures_of(_: GoodputOptions, fleets: Fleets) -> list[dict[str, object]]:
    return [
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
            "merges": len(played.training.merges),
            "hours": played.cell.measured_s / fleet.HOUR_S,
            "chip_hours_per_1e9_tokens": played.training.chip_hours,
            "link_bytes_per_token": played.training.link_bytes,
        }
        for (row, chips), played in fleets.items()
        for theirs in (published_of(fleets, row, chips),)
    ]


def pictures(_: GoodputOptions, fleets: Fleets) -> Pictures:
    """Draw goodput, and a timeline of the fleet of most chips and learners, where most happens."""
    busiest = fleets[max(fleets, key=lambda key: (key[1], key[0]))]
    return {"goodput.png": lambda: plot(fleets), "timeline.png": lambda: timeline(busiest)}


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


def timeline(played: ComparedFleet) -> bytes:
    """Who stepped and who stalled in one fleet's first hour, and when it merged; a PNG file."""
    cell = played.cell
    from_s = cell.warmup_s
    until_s = min(cell.end_s, from_s + TIMELINE_S)
    names = [member.name for member in cell.members()[:ROWS_MOST]]
    with new_figure(AROUND_INCHES + ROW_INCHES * (len(names) + 1)) as figure:
        figure.suptitle(f"{cell.chips:,.0f} chips in {cell.learners:,} learners", x=0.01, ha="left")
        axes = figure.subplots()
        unit_s = seconds_below(axes, until_s - from_s)
        everywhere = range(len(names))
        axes.barh(
            everywhere, (until_s - from_s) / unit_s, BAR_HEIGHT, color=GREEN, label="stepping"
        )
        stalls = [
            (row, (start_s - from_s) / unit_s, (min(stop_s, until_s) - start_s) / unit_s)
            for row in everywhere
            for start_s, stop_s in played.figures.stalls_s[row]
            if start_s < until_s
        ]
        if stalls:
            rows, begins, lengths = zip(*stalls, strict=True)
            shortest = SHORTEST_SHARE * (until_s - from_s) / unit_s
            shown = [max(shortest, length) for length in lengths]
            axes.barh(rows, shown, BAR_HEIGHT, begins, color=VERMILION, label="stalled")
        merges = [(at_s - from_s) / unit_s for at_s, _ in played.training.merges if at_s < until_s]
        height = BAR_HEIGHT / 2
        axes.vlines(merges, len(names) - height, len(names) + height, color=BLACK, linewidth=0.8)
        axes.set_yticks(range(len(names) + 1), [*names, "merges"])
        axes.set_ylim(len(names) + 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
        return encoded(figure)


EXPERIMENT = Experiment(cells_of, play_both, table, figures_of, pictures)
