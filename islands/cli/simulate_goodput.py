"""`islands simulate goodput`: what failing chips leave of a fleet's time."""

from pathlib import Path
from typing import TYPE_CHECKING

from islands.cli.parsing import Common
from islands.cluster.formatting import duration
from islands.errors import unusable
from islands.files.atomic_write import replace_file
from islands.settings.goodput import GoodputOptions
from messaging.clock import MonotonicClock

if TYPE_CHECKING:
    from islands.goodput.table import Fleets

TABLE_FILE, FIGURES_FILE = "goodput.md", "goodput.json"
PLOT_FILE, TIMELINE_FILE = "goodput.png", "timeline.png"


def run(options: GoodputOptions, _: Common) -> int:
    """Play every fleet, then print the table; returns the exit code.

    Raises:
        UserError: the folder cannot be written to.
    """
    from islands.goodput.runner import cells_of
    from islands.goodput.runner import run as run_fleets
    from islands.goodput.table import table

    cells = cells_of(options)
    clock, found = MonotonicClock(), {}
    begun_s = clock.now_s()
    for key, played in run_fleets(cells, options.workers):
        found[key] = played
        each_s, left = (clock.now_s() - begun_s) / len(found), len(cells) - len(found)
        wait = f", about {duration(each_s * left)} left" if left else ""
        print(f"[{len(found)}/{len(cells)}]{wait}", flush=True)
    ordered = {key: found[key] for key in cells}
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            replace_file(folder / name, content)
    except OSError as error:
        raise unusable(f"the folder {folder} cannot be written", error) from error
    print(f"{', '.join(files)} are in {folder}")
