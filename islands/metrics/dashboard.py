"""The dashboard for Grafana: the catalogue's metrics in rows of panels.

The file is written from here (`python -m islands.metrics.dashboard > deploy/grafana/islands.json`).
A panel's text is what the catalogue says of its metrics, and a series is named after its labels.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from islands.metrics.catalogue import BY_NAME

WIDTH = 24
"""Columns of Grafana's grid."""
NAME = re.compile(r"islands_\w+")
CHOSEN = '{instance=~"$instance"}'
"""What a dashboard's reader has chosen to see."""
SOURCE = {"type": "prometheus", "uid": "${source}"}
NUMBER, SECONDS, BYTES, SHARE = "short", "s", "bytes", "percentunit"
DATE = "dateTimeFromNow"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Args:
        title: its title.
        unit: Grafana's word for the unit.
        expressions: what it shows, with metrics by their names alone.
        newest: whether it shows the newest values alone.
        size: how many columns and lines of the grid it takes.
    """

    title: str
    unit: str
    expressions: tuple[str, ...]
    newest: bool = False
    size: tuple[int, int] = (8, 8)

    @property
    def metrics(self) -> list[str]:
        """The names of its metrics."""
        return list(dict.fromkeys(NAME.findall(" ".join(self.expressions))))

    def as_json(self, number: int, x: int, y: int) -> dict[str, object]:
        """Return the panel at a place of the grid, as Grafana reads it."""
        width, height = self.size
        words = all(BY_NAME[name].tells_words for name in self.metrics)
        shown = "name" if words else "value_and_name"
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": shown}
        return {
            "id": number,
            "type": "stat" if self.newest else "timeseries",
            "title": self.title,
            "description": ". ".join(f"{name}: {BY_NAME[name].meaning}" for name in self.metrics),
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "fieldConfig": {"defaults": {"unit": self.unit}, "overrides": []},
            "options": options if self.newest else {"tooltip": {"mode": "multi"}},
            "targets": [
                {
                    "refId": chr(ord("A") + index),
                    "expr": chosen(expression),
                    "legendFormat": legend(expression),
                    "instant": self.newest,
                }
                for index, expression in enumerate(self.expressions)
            ],
        }


def now(title: str, unit: str, *expressions: str) -> Panel:
    """Return a small panel of newest values."""
    return Panel(title, unit, expressions, newest=True, size=(4, 4))


def over_time(title: str, unit: str, *expressions: str) -> Panel:
    """Return a panel of curves."""
    return Panel(title, unit, expressions)


def rate(name: str) -> str:
    """Return the growth of a counter in a second."""
    return f"rate({name}[$__rate_interval])"


def chosen(expression: str) -> str:
    """Return the expression for the chosen processes alone."""
    return re.sub(rf"({NAME.pattern})(\[.*?\])?", rf"\1{CHOSEN}\2", expression)


def legend(expression: str) -> str:
    """Return how a series is named: by the metric's labels, or by the metric."""
    name = NAME.findall(expression)[0]
    labels = " ".join(f"{{{{{label}}}}}" for label in BY_NAME[name].labels)
    return labels or name.removeprefix("islands_").removesuffix("_total").replace("_", " ")


ROWS: dict[str, tuple[Panel, ...]] = {
    "The run": (
        now("Run", NUMBER, "islands_run_info"),
        now("Phase", NUMBER, "islands_run_phase"),
        now("Ready", NUMBER, "islands_ready", "islands_syncer_up", "islands_run_warning"),
        now("Age", SECONDS, "islands_run_age_seconds"),
        now("Time left", SECONDS, "islands_run_left_seconds"),
        now("Version", NUMBER, "islands_build_info"),
        now("Tokens", NUMBER, "islands_run_tokens_total"),
        now("Tokens a second", NUMBER, "islands_run_tokens_per_second"),
        now("Loss", NUMBER, "islands_run_loss"),
        now("Yield", SHARE, "islands_run_yield_ratio"),
        now("Goodput", SHARE, "islands_run_goodput_ratio"),
        now("Goodput as Google counts it", SHARE, "islands_run_google_goodput_ratio"),
        over_time(
            "Tokens and budget", NUMBER, "islands_run_tokens_total", "islands_run_budget_tokens"
        ),
        over_time("Tokens a second", NUMBER, "islands_run_tokens_per_second"),
        over_time("Loss", NUMBER, "islands_run_loss", "islands_learner_loss"),
        over_time("Metrics of steps", NUMBER, "islands_learner_metric"),
        over_time("Evaluation", NUMBER, "islands_run_evaluation"),
        over_time("Learning rate", NUMBER, "islands_run_learning_rate"),
        over_time(
            "Yield and goodput",
            SHARE,
            "islands_run_yield_ratio",
            "islands_run_goodput_ratio",
            "islands_run_google_goodput_ratio",
        ),
    ),
    "Merges": (
        over_time("Merges a second", NUMBER, rate("islands_run_merges_total")),
        over_time(
            "Since the last merge",
            SECONDS,
            "islands_run_since_merge_seconds",
            "islands_run_merge_interval_seconds",
        ),
        over_time(
            "Open rounds of fragments", NUMBER, "islands_rounds_open", "islands_run_fragments"
        ),
        over_time("Tokens by fate, over fragments", NUMBER, "islands_ledger_tokens"),
        over_time(
            "Tokens merged and processed",
            NUMBER,
            "islands_run_merged_tokens_total",
            "islands_ledger_processed_tokens_total",
            "islands_run_unbooked_tokens_total",
            "islands_ledger_imbalance_tokens",
        ),
        over_time("Clock of the fleet", NUMBER, "islands_run_clock_steps"),
    ),
    "Learners": (
        over_time("Learners by state", NUMBER, "islands_learners", "islands_learners_unlisted"),
        Panel("States now", NUMBER, ("islands_learner_state",), newest=True),
        over_time("Silent for", SECONDS, "islands_learner_silent_seconds"),
        over_time("Not in so many merges", NUMBER, "islands_learner_unmerged_rounds"),
        over_time("Tokens a second", NUMBER, "islands_learner_tokens_per_second"),
        over_time("Tokens", NUMBER, "islands_learner_tokens_total"),
        over_time("Steps a second", NUMBER, rate("islands_learner_steps_total")),
        over_time("Duration of a step", SECONDS, "islands_learner_step_seconds"),
        over_time("Longest gap between steps", SECONDS, "islands_learner_stall_seconds"),
        over_time(
            "Share of time spent on steps", SHARE, rate("islands_learner_stepping_seconds_total")
        ),
        over_time(
            "Share of time without data", SHARE, rate("islands_learner_data_wait_seconds_total")
        ),
        over_time("Sent in a second", BYTES, rate("islands_learner_sent_bytes_total")),
        over_time("Received in a second", BYTES, rate("islands_learner_received_bytes_total")),
        over_time("Admissions", NUMBER, "islands_learner_incarnations_total"),
        over_time("Evictions", NUMBER, "islands_run_evictions_total"),
        over_time("Losses that are no number", NUMBER, "islands_learner_diverged"),
    ),
    "Journal, disk, clock and certificates": (
        over_time("Journal's lag", SECONDS, "islands_journal_lag_seconds"),
        over_time("Journal records that wait", NUMBER, "islands_journal_pending_records"),
        over_time("Journal records a second", NUMBER, rate("islands_journal_records_total")),
        over_time(
            "Disk",
            BYTES,
            "islands_disk_free_bytes",
            "islands_disk_reserve_bytes",
            "islands_disk_size_bytes",
        ),
        over_time(
            "Disk that fails, and entries lost",
            NUMBER,
            "islands_disk_failing",
            "islands_disk_lost_entries_total",
        ),
        over_time(
            "Clocks",
            SECONDS,
            "islands_process_clock_drift_seconds",
            "timestamp(islands_process_time_seconds) - islands_process_time_seconds",
        ),
        now("Certificates end", DATE, "1000 * islands_certificate_expiry_timestamp_seconds"),
    ),
    "Members with --metrics": (
        now("Members", NUMBER, "islands_member_info"),
        now("Phase", NUMBER, "islands_member_phase"),
        now("Linked with", NUMBER, "islands_member_linked"),
        over_time("Steps a second", NUMBER, rate("islands_member_steps_total")),
        over_time("Tokens a second", NUMBER, rate("islands_member_tokens_total")),
        over_time(
            "Bytes a second",
            BYTES,
            rate("islands_member_sent_bytes_total"),
            rate("islands_member_received_bytes_total"),
        ),
    ),
}


def panels() -> Iterator[dict[str, object]]:
    """Yield all rows and panels, each at its place: from left to right, line by line."""
    number, y = 1, 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}
        number, x, y, line = number + 1, 0, y + 1, 0
        for panel in row:
            width, height = panel.size
            if x + width > WIDTH or (x and height != line):
                x, y = 0, y + line
            yield panel.as_json(number, x, y)
            number, x, line = number + 1, x + width, height
        y += line


def dashboard() -> dict[str, object]:
    """Return the dashboard, but for its panels."""
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    instance = {
        "name": "instance",
        "label": "Process",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(islands_ready, instance)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "title": "Islands",
        "uid": "islands",
        "tags": ["islands"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, instance]},
    }


def dashboard_file() -> str:
    """Return the text of the dashboard's file: one panel a line."""
    lines = ",\n".join(json.dumps(panel) for panel in panels())
    return f'{json.dumps(dashboard())[:-1]}, "panels": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    import sys

    sys.stdout.write(dashboard_file())
