"""The dashboard shows every metric, by expressions that Prometheus can read."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from islands.metrics.catalogue import BY_NAME
from islands.metrics.dashboard import ROWS, WIDTH, dashboard_file, panels

ROOT = Path(__file__).resolve().parents[2]


def targets() -> list[tuple[str, str]]:
    """Expression and legend of each series, as the file has them."""
    told = json.loads(dashboard_file())
    found = [target for panel in told["panels"] for target in panel.get("targets", ())]
    return [(target["expr"], target["legendFormat"]) for target in found]


def test_the_file_is_written_from_the_panels() -> None:
    """It is no copy that ages."""
    assert (ROOT / "deploy/grafana/islands.json").read_text() == dashboard_file()


def test_every_metric_has_a_panel_and_no_other_is_named() -> None:
    """Series are named after labels that their metric has."""
    shown = {name for row in ROWS.values() for panel in row for name in panel.metrics}
    assert shown == set(BY_NAME)
    for expression, legend in targets():
        names = re.findall(r"islands_\w+", expression)
        labels = {label for name in names for label in BY_NAME[name].labels}
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels
        assert re.findall(r"{(\w+)", expression) == ["instance"] * len(names)


def test_panels_lie_beside_each_other() -> None:
    """None lies on another one, or leaves the grid."""
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        assert isinstance(at, dict)
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken
        assert all(x < WIDTH for x, _ in cells)
        taken |= cells


def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    """Its own program takes each for a rule that records it."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool command (Debian's package prometheus)")
    rules = [
        {"record": f"panel:{index}", "expr": evaluated(expression)}
        for index, (expression, _) in enumerate(targets())
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    told = subprocess.run(
        [promtool, "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr


def evaluated(expression: str) -> str:
    """The expression as Grafana sends it, once all processes are chosen."""
    return expression.replace("$instance", ".*").replace("$__rate_interval", "1m")
