"""`islands simulate bandwidth`: the link that a learner needs so as not to wait for it."""

from islands.cli.parsing import Common
from islands.cli.simulating import play_all, show
from islands.lab.settings.simulations import BandwidthOptions


def run(options: BandwidthOptions, _: Common) -> int:
    """Search for every bandwidth, then print the tables; returns the exit code.

    Raises:
        UserError: no row has such a name, or the folder cannot be written to.
    """
    from islands.lab.experiments.bandwidth import json_of, searches_of, table
    from islands.lab.experiments.bandwidth_search import search

    found = play_all(search, searches_of(options), options.playing.workers)
    show(
        "bandwidth",
        table(options, found),
        options.playing.folder,
        {"bandwidth.json": lambda: json_of(options, found)},
    )
    return 0
