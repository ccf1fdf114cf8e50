"""The fleets that a table of goodput compares, and how one of them is played."""

from dataclasses import replace

from islands.lab.experiments import event_model, fleet
from islands.lab.experiments.cells import HOUR_S, Cell, Link, Played
from islands.lab.experiments.chips import Chips
from islands.lab.experiments.paper import CHIPS, GOODPUT, Row
from islands.lab.settings.goodput import GoodputOptions

Key = tuple[Row, float]
"""Of a fleet: its row in the table, and its number of chips."""

LEARNER_HOURS, HOURS_LEAST = 24.0, 2.0
"""Measured of each fleet by default: the failures of all of its learners are counted together."""


def rows_of(options: GoodputOptions) -> list[Row]:
    """Return the rows of the table."""
    if options.table is not None:
        return list(GOODPUT)
    rows = [Row(learners) for learners in dict.fromkeys(options.learners)]
    return [Row(1, elastic=False), *rows] if options.not_elastic else rows


def cells_of(options: GoodputOptions) -> dict[Key, Cell]:
    """Return every fleet that is asked for, by row and number of chips."""
    chips = CHIPS if options.table is not None else tuple(dict.fromkeys(options.chips))
    return {(row, count): _cell(options, row, count) for row in rows_of(options) for count in chips}


def _cell(options: GoodputOptions, row: Row, chips: float) -> Cell:
    hours = options.hours or max(HOURS_LEAST, LEARNER_HOURS / row.learners)
    return Cell(
        chips=chips,
        learners=row.learners,
        elastic=row.elastic,
        each=Chips(
            chips / row.learners,
            slice_chips=options.slice_chips,
            mtbi_s=options.mtbi_days * 24 * HOUR_S,
            stall_s=options.stall_s,
            return_s=options.return_s,
            rejoin_every_s=options.rejoin_every_s,
            rejoin_stall_s=options.rejoin_stall_s,
            restart_s=options.restart_s,
        ),
        step_s=options.step_s,
        noise=options.noise,
        speeds=options.speeds,
        chip_tokens=options.chip_tokens,
        parameters=options.parameters,
        link=Link(options.latency_s, options.gbit_s),
        settings=replace(options.run, seed=options.seed),
        warmup_s=options.warmup_h * HOUR_S,
        measured_s=hours * HOUR_S,
        seed=options.seed,
    )


def play(cell: Cell) -> Played:
    """Play one fleet with the actors, and by the event model alone."""
    return Played(cell, *fleet.play(cell), event_model.play(cell))
