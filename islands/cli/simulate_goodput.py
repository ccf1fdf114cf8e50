"""`islands simulate goodput`: what failing chips leave of a fleet's time."""

from pathlib import Path
from typing import TYPE_CHECKING

from islands.cli.parsing import Common
from islands.cli.simulating import play_all, write
from islands.settings.goodput import GoodputOptions

if TYPE_CHECKING:
    from islands.goodput.table import Fleets

TABLE_FILE, FIGURES_FILE = "goodput.md", "goodput.json"
PLOT_FILE, TIMELINE_FILE = "goodput.png", "timeline.png"


def run(options: GoodputOptions, _: Common) -> int:
    """Play every fleet, then print the table; returns the exit code.

    Raises:
        UserError: the folder cannot be written to.
    """
    from islands.goodput.runner import cells_of, play
    from islands.goodput.table import table

    ordered = play_all(play, cells_of(options), options.workers)
    print(f"\n{table(ordered)}", end="")
    if options.folder is not None:
        _write(options.folder, ordered)
    return 0


def _write(folder: Path, found: "Fleets") -> None:
    """Write the table, the figures and the plots.

    The timeline is of the fleet of the most chips and learners, where most happens.
    """
    from islands.goodput.plot import plot, timeline
    from islands.goodput.table import json_of, table

    busiest = found[max(found, key=lambda key: (key[1], key[0]))]
    files = {
        TABLE_FILE: table(found).encode(),
        FIGURES_FILE: json_of(found),
        PLOT_FILE: plot(found),
        TIMELINE_FILE: timeline(busiest),
    }
    write(folder, files)
