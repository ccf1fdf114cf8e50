"""`islands simulate grow`: one run whose learners become many, and few again."""

from islands.cli.parsing import Common
from islands.cli.simulating import show
from islands.lab.settings.changing_fleets import GrowOptions


def run(options: GrowOptions, _: Common) -> int:
    """Play the run, then print the table; returns the exit code.

    Raises:
        UserError: the folder cannot be written to.
    """
    from islands.lab.experiments.growth import json_of, play, plot, table

    grown = play(options)
    show(
        "grow",
        table(options, grown),
        options.folder,
        {"grow.json": lambda: json_of(options, grown), "grow.png": lambda: plot(options, grown)},
    )
    return 1 if grown.violations else 0
