"""Metrics are documented, named by the conventions, and their rules are those of the file."""

import re
from pathlib import Path

from islands.metrics.catalogue import BY_NAME, METRICS, Kind, table
from islands.metrics.rules import DOWN, RULES, rules_file

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_every_metric() -> None:
    """The table of docs/metrics.md is that of the code."""
    assert table() in (ROOT / "docs" / "metrics.md").read_text()


def test_names_follow_the_conventions() -> None:
    """Counters end in _total and nothing else does; labels are of bounded sets."""
    for metric in METRICS:
        assert re.fullmatch(r"islands_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert len(BY_NAME) == len(METRICS)


def test_the_rules_file_is_written_from_the_rules() -> None:
    """Thresholds of Prometheus and of a hub are the same numbers."""
    assert (ROOT / "deploy/prometheus/islands.rules.yaml").read_text() == rules_file()


def test_rules_name_only_metrics_that_exist() -> None:
    """A rule of a metric that is not there would never fire."""
    for rule in (*RULES, DOWN):
        assert set(re.findall(r"islands_\w+", rule.expression)) <= set(BY_NAME)
