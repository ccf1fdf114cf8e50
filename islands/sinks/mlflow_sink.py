"""Curves in MLflow, over the run's tokens; `MLFLOW_TRACKING_URI` and its siblings say where.

Without it they are below the folder in which the hub was started.
"""

import os
from collections.abc import Sequence

from mlflow.entities import Metric, Param, RunStatus
from mlflow.tracking import MlflowClient

from islands.sinks.sink import Row, RunFacts, points_in, totals_of
from messaging.clock import WallClock

IDENTITY = "islands.run"
AT_ONCE = 1000
"""Most metrics, and ten times the most parameters, of one call."""
VALUE_MAX = 500


class Mlflow:
    """A run of MLflow, which goes on when a hub is restarted."""

    def __init__(self, run: RunFacts) -> None:
        self._client = client = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "islands")
        experiment = client.get_experiment_by_name(name)
        place = experiment.experiment_id if experiment else client.create_experiment(name)
        found = client.search_runs([place], f"tags.`{IDENTITY}` = '{run.identity}'", max_results=1)
        if found:
            self._id = found[0].info.run_id
            client.update_run(self._id, RunStatus.to_string(RunStatus.RUNNING))
            return
        tags = {IDENTITY: run.identity}
        self._id = client.create_run(place, run_name=run.name, tags=tags).info.run_id
        params = [Param(key, str(value)[:VALUE_MAX]) for key, value in run.settings.items()]
        for first in range(0, len(params), AT_ONCE // 10):
            client.log_batch(self._id, params=params[first : first + AT_ONCE // 10])

    def record(self, rows: Sequence[Row]) -> None:
        self._log([(points.tokens, points.named()) for points in points_in(rows)])

    def end(self, summary: Row | None) -> None:
        if summary is None:
            self._client.set_terminated(self._id, RunStatus.to_string(RunStatus.KILLED))
            return
        totals = totals_of(summary)
        numbers = {f"final/{k}": float(v) for k, v in totals.items() if not isinstance(v, str)}
        tokens = totals.get("tokens", 0)
        self._log([(tokens if isinstance(tokens, int) else 0, numbers)])
        self._client.set_terminated(self._id)

    def _log(self, points: Sequence[tuple[int, dict[str, float]]]) -> None:
        now_ms = int(1000 * WallClock().now_s())
        metrics = [
            Metric(name, value, now_ms, tokens)
            for tokens, values in points
            for name, value in values.items()
        ]
        for first in range(0, len(metrics), AT_ONCE):
            self._client.log_batch(self._id, metrics=metrics[first : first + AT_ONCE])


start = Mlflow
