"""`islands simulate uneven`: learners of unlike speed, with and without waiting for the slowest."""

from islands.cli.parsing import Common
from islands.cli.simulating import play_all, write
from islands.settings.simulations import UnevenOptions


def run(options: UnevenOptions, _: Common) -> int:
    """Play every run, then print the table; returns the exit code.

    Raises:
        UserError: the folder cannot be written to.
    """
    from islands.goodput.uneven import cells_of, json_of, play, table

    found = play_all(play, cells_of(options), options.playing.workers)
    told = table(options, found)
    print(f"\n{told}", end="")
    files = {"uneven.md": told.encode(), "uneven.json": json_of(options, found)}
    write(options.playing.folder, files)
    return 0
