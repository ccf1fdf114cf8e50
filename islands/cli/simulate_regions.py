"""`islands simulate regions`: one model over regions with narrow links between them."""

from islands.cli.parsing import Common
from islands.cli.simulating import play_all, show
from islands.lab.settings.simulations import RegionsOptions


def run(options: RegionsOptions, _: Common) -> int:
    """Play every run, then print the tables; returns the exit code.

    Raises:
        UserError: the folder cannot be written to.
    """
    from islands.lab.experiments.regions import cells_of, json_of, play, plot, table

    found = play_all(play, cells_of(options), options.playing.workers)
    show(
        "regions",
        table(options, found),
        options.playing.folder,
        {
            "regions.json": lambda: json_of(options, found),
            "regions.png": lambda: plot(options, found),
        },
    )
    return 0
