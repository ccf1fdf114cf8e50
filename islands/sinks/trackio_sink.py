"""Curves in trackio, over the run's tokens; `TRACKIO_DIR` and its siblings say where they are."""

import os
from collections.abc import Sequence

import trackio

from islands.sinks.sink import Row, RunFacts, points_in, totals_of


class Trackio:
    """A run of trackio, which goes on when a hub is restarted."""

    def __init__(self, run: RunFacts) -> None:
        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", "islands"),
            name=run.identity,
            config=dict(run.settings),
            resume="allow",
        )

    def record(self, rows: Sequence[Row]) -> None:
        for points in points_in(rows):
            self._run.log({**points.named(), "tokens": points.tokens})

    def end(self, summary: Row | None) -> None:
        """Log the summary's figures, and write what is left."""
        if summary is not None:
            self._run.log({f"final/{key}": value for key, value in totals_of(summary).items()})
        self._run.finish()


start = Trackio
