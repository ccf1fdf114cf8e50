"""Metrics are documented; rules and dashboard of `deploy/` name those that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from islands.metrics.catalogue import BY_NAME, METRICS
from tests.benchmarks.alert_faults import FAULTS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES: list[dict[str, Any]] = yaml.safe_load(
    (DEPLOY / "prometheus/islands.rules.yaml").read_text()
)["groups"][0]["rules"]
PANELS: list[dict[str, Any]] = json.loads((DEPLOY / "grafana/islands.json").read_text())["panels"]

Labels = tuple[str, ...]
STEP_S = 15
STEPS = 80
CAUSE = range(10, 45)
"""The steps at which the cause of an alert is there."""
WELL: Mapping[tuple[str, Labels], float] = {
    ("islands_run_since_merge_seconds", ()): 2.0,
    ("islands_run_merge_interval_seconds", ()): 3.0,
    ("islands_run_yield_ratio", ()): 0.9,
    ("islands_run_merges_total", ()): 1000.0,
    ("islands_run_fragments", ()): 6.0,
    ("islands_learner_incarnations_total", ("ana",)): 1.0,
    ("islands_learner_diverged", ("ana",)): 0.0,
    ("islands_learner_unmerged_rounds", ("ana",)): 60.0,
    ("islands_disk_failing", ()): 0.0,
    ("islands_disk_free_bytes", ()): 2.0**34,
    ("islands_disk_reserve_bytes", ()): 2.0**30,
    ("islands_journal_lag_seconds", ()): 0.0,
}
CAUSES: Mapping[str, Mapping[tuple[str, Labels], float]] = {
    "IslandsNothingMerged": {("islands_run_since_merge_seconds", ()): 61.0},
    "IslandsLearnerUnmerged": {("islands_learner_unmerged_rounds", ("ana",)): 61.0},
    "IslandsLearnerFlaps": {("islands_learner_incarnations_total", ("ana",)): 4.0},
    "IslandsYieldLow": {("islands_run_yield_ratio", ()): 0.49},
    "IslandsDisk": {("islands_disk_free_bytes", ()): 2.0**30 - 1},
    "IslandsJournalLags": {("islands_journal_lag_seconds", ()): 31.0},
    "IslandsLossNotFinite": {("islands_learner_diverged", ("ana",)): 1.0},
}
CLEARED = {"IslandsLearnerFlaps": STEPS}
"""The step at which an alert is over, where the cause outlasts its end."""


def targets() -> list[tuple[str, str]]:
    """Expression and legend of each series of the dashboard."""
    found = [target for panel in PANELS for target in panel.get("targets", ())]
    return [(target["expr"], target["legendFormat"]) for target in found]


def promtool(*words: str, folder: Path) -> None:
    """Have Prometheus' own tool check files."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("there is no promtool command (Debian's package prometheus)")
    done = subprocess.run([tool, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_name_metrics_that_exist_and_have_a_fault_each() -> None:
    assert {rule["alert"] for rule in RULES} == {*CAUSES, "IslandsDown"}
    assert {kind.__name__ for kind in FAULTS} == {*CAUSES, "IslandsDown"} - {
        "IslandsLearnerUnmerged"
    }
    for rule in RULES:
        assert set(re.findall(r"islands_\w+", rule["expr"])) <= set(BY_NAME)
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["description"]


def test_every_metric_has_a_panel_and_no_other_is_named() -> None:
    shown = {name for expression, _ in targets() for name in re.findall(r"islands_\w+", expression)}
    assert shown == set(BY_NAME)
    for expression, legend in targets():
        names = re.findall(r"islands_\w+", expression)
        labels = {label for name in names for label in BY_NAME[name].labels}
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels
        assert re.findall(r"{(\w+)", expression) == ["instance"] * len(names)


def test_prometheus_reads_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{index}", "expr": evaluated(expression)}
        for index, (expression, _) in enumerate(targets())
    ]
    told = yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    (tmp_path / "rules.yaml").write_text(told)
    promtool("check", "rules", "rules.yaml", folder=tmp_path)


def evaluated(expression: str) -> str:
    """The expression as Grafana sends it, once all processes are chosen."""
    return expression.replace("$instance", ".*").replace("$__rate_interval", "1m")


@pytest.mark.parametrize("rule", ["nothing", *CAUSES])
def test_a_rule_fires_on_its_cause_alone_and_clears(rule: str, tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "prometheus/islands.rules.yaml", tmp_path / "rules.yaml")
    groups = [prometheus_test(rule)]
    told = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{STEP_S}s", "tests": groups}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(told))
    for words in (("check", "rules", "rules.yaml"), ("test", "rules", "test.yaml")):
        promtool(*words, folder=tmp_path)


def prometheus_test(rule: str) -> dict[str, object]:
    """Series with the cause of one rule, and when it alone fires, as `promtool` reads them."""

    def values_at(step: int) -> dict[tuple[str, Labels], float]:
        there = CAUSE.start <= step < CLEARED.get(rule, CAUSE.stop)
        return {**WELL, **(CAUSES.get(rule, {}) if there else {})}

    series = []
    for name, labels in WELL:
        pairs = zip(BY_NAME[name].labels, labels, strict=True)
        shown = ",".join(f'{key}="{value}"' for key, value in pairs)
        values = [values_at(step)[name, labels] for step in range(STEPS)]
        text = " ".join(f"{value:.0f}" if value > 1 else f"{value:g}" for value in values)
        series.append({"series": f"{name}{{{shown}}}", "values": text})
    fires = int(rule in CAUSES)
    counts = {CAUSE.start - 1: 0, CAUSE.stop - 1: fires, STEPS - 1: 0}
    expected = [
        {
            "expr": 'count(ALERTS{alertstate="firing"}) or vector(0)',
            "eval_time": f"{step * STEP_S}s",
            "exp_samples": [{"labels": "{}", "value": count}],
        }
        for step, count in counts.items()
    ]
    return {"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": expected}


def test_the_page_has_every_metric() -> None:
    lines = ["| metric | type | unit | labels | told by | meaning |", "|---|---|---|---|---|---|"]
    for name, kind, unit, labels, who, meaning in METRICS:
        shown = ", ".join(f"`{label}`" for label in labels)
        lines.append(f"| `{name}` | {kind} | {unit} | {shown} | {who} | {meaning} |")
    assert "\n".join(lines) in (DEPLOY.parent / "docs" / "metrics.md").read_text()


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        assert metric.kind in ("counter", "gauge")
        assert re.fullmatch(r"islands_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert len(BY_NAME) == len(METRICS)
