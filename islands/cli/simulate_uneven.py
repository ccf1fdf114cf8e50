"""`islands simulate uneven`: learners of unlike speed, with and without waiting for the slowest."""

from islands.cli.parsing import Common
from islands.cli.simulating import play_all, show
from islands.lab.settings.simulations import UnevenOptions


def run(options: UnevenOptions, _: Common) -> int:
    """Play every run, then print the table; returns the exit code.

    Raises:
        UserError: the folder cannot be written to.
    """
    from islands.lab.experiments.uneven import cells_of, json_of, play, table

    found = play_all(play, cells_of(options), options.playing.workers)
    show(
        "uneven",
        table(options, found),
        options.playing.folder,
        {"uneven.json": lambda: json_of(options, found)},
    )
    return 0
