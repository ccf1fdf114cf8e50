"""`islands simulate scavenge`: compute that comes and goes, for a run of a token budget."""

from islands.cli.parsing import Common
from islands.cli.simulating import play_all, show
from islands.lab.settings.changing_fleets import ScavengeOptions


def run(options: ScavengeOptions, _: Common) -> int:
    """Play every run, then print the table; returns the exit code.

    Raises:
        UserError: the folder cannot be written to.
    """
    from islands.lab.experiments.scavenging import jobs_of, json_of, play, table

    found = play_all(play, jobs_of(options), options.playing.workers)
    show(
        "scavenge",
        table(options, found),
        options.playing.folder,
        {"scavenge.json": lambda: json_of(options, found)},
    )
    return 0
