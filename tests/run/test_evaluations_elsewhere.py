"""What an observer on another host finds is among the run's metrics."""

import json
from pathlib import Path

import pytest

from islands.protocol.identities import Role
from islands.protocol.messages.control import Note
from islands.protocol.settings.run import RunSettings
from islands.run.records.run_folder import RunFolder


@pytest.mark.parametrize(("role", "tokens"), [(Role.OBSERVER, [640]), (Role.LEARNER, [])])
def test_an_evaluation_elsewhere_counts_as_the_hubs_own(
    tmp_path: Path, role: Role, tokens: list[int]
) -> None:
    folder = RunFolder(tmp_path / "run", RunSettings())
    told = {"clock": 3.0, "tokens": 640, "took_s": 0.5, "figures": {"accuracy": 0.75}}
    folder.on_note("eve", role, 2.0, Note("evaluation", json.dumps(told)))
    folder.close()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    found = [row for row in map(json.loads, lines) if row["kind"] == "evaluation"]
    assert [row["tokens"] for row in found] == tokens
    assert {row["accuracy"] for row in found} <= {0.75}
    assert [row["tokens"] for row in folder.figures.evaluations] == tokens
