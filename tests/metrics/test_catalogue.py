"""Metrics are documented, named by the conventions, and their rules are those of the file."""

import re
from pathlib import Path

from islands.metrics.catalogue import BY_NAME, METRICS, table

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_every_metric() -> None:
    assert table() in (ROOT / "docs" / "metrics.md").read_text()


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        assert metric.kind in ("counter", "gauge")
        assert re.fullmatch(r"islands_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert len(BY_NAME) == len(METRICS)
