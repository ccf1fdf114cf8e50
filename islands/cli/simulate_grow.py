"""`islands simulate grow`: one run whose learners become many, and few again."""

from islands.cli.parsing import Common
from islands.cli.simulating import write
from islands.settings.changing_fleets import GrowOptions


def run(options: GrowOptions, _: Common) -> int:
    """Play the run, then print the table; returns the exit code.

    Raises:
        UserError: the folder cannot be written to.
    """
    from islands.goodput.growth import json_of, play, plot, table

    grown = play(options)
    told = table(options, grown)
    print(told, end="")
    files = {
        "grow.md": told.encode(),
        "grow.json": json_of(options, grown),
        "grow.png": plot(options, grown),
    }
    write(options.folder, files)
    return 1 if grown.violations else 0
