"""Metrics are documented, named by the conventions, and their rules are those of the file."""

import re
from pathlib import Path

from islands.metrics.catalogue import BY_NAME, METRICS

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_every_metric() -> None:
    lines = ["| metric | type | unit | labels | told by | meaning |", "|---|---|---|---|---|---|"]
    for name, kind, unit, labels, who, meaning in METRICS:
        shown = ", ".join(f"`{label}`" for label in labels)
        lines.append(f"| `{name}` | {kind} | {unit} | {shown} | {who} | {meaning} |")
    assert "\n".join(lines) in (ROOT / "docs" / "metrics.md").read_text()


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        assert metric.kind in ("counter", "gauge")
        assert re.fullmatch(r"islands_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert len(BY_NAME) == len(METRICS)
