"""Curves in Weights & Biases, over the run's tokens; its own environment variables set it up.

`WANDB_MODE=offline` keeps them in `sinks/wandb` of the run's folder, from where `wandb sync` sends
them later.
"""

import os
from collections.abc import Sequence

import wandb

from islands.sinks.sink import Row, RunFacts, points_in, sink_folder, totals_of


class Wandb:
    """A run of Weights & Biases, which goes on when a hub is restarted."""

    def __init__(self, run: RunFacts) -> None:
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "islands"),
            name=run.name,
            id=run.identity,
            resume="allow",
            dir=sink_folder(run.folder),
            config=dict(run.settings),
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("tokens")
        self._run.define_metric("*", step_metric="tokens")

    def record(self, rows: Sequence[Row]) -> None:
        for points in points_in(rows):
            self._run.log({**points.named(), "tokens": points.tokens})

    def end(self, summary: Row | None) -> None:
        """Write the summary, and upload what is left."""
        if summary is not None:
            self._run.summary.update({f"final/{k}": v for k, v in totals_of(summary).items()})
        self._run.finish()


start = Wandb
