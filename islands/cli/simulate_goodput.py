"""`islands simulate goodput`: what failing chips leave of a fleet's time."""

from islands.cli.parsing import Common
from islands.cli.simulating import play_all, show
from islands.lab.settings.goodput import GoodputOptions


def run(options: GoodputOptions, _: Common) -> int:
    """Play every fleet, then print the table; returns the exit code.

    The timeline is of the fleet of the most chips and learners, where most happens.

    Raises:
        UserError: the folder cannot be written to.
    """
    from islands.lab.experiments.plot import plot, timeline
    from islands.lab.experiments.runner import cells_of, play
    from islands.lab.experiments.table import json_of, table

    found = play_all(play, cells_of(options), options.workers)
    busiest = found[max(found, key=lambda key: (key[1], key[0]))]
    show(
        "goodput",
        table(found),
        options.folder,
        {
            "goodput.json": lambda: json_of(found),
            "goodput.png": lambda: plot(found),
            "timeline.png": lambda: timeline(busiest),
        },
    )
    return 0
