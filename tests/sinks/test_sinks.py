"""Sinks agree with metrics.jsonl and the ledger, and none of them can hold up a run."""

import asyncio
import json
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from islands.model.evaluation import Judged
from islands.protocol.settings.run import RunSettings
from islands.run.records.run_folder import RunFolder
from islands.settings.host import RunOptions
from islands.sinks.__main__ import main
from islands.sinks.processes import LEFT_BEHIND, sink_processes
from islands.sinks.sink import points_of
from tests.protocol.tape.samples import MERGED, admitted
from tests.run.test_run_folder import rows, told

LIMIT_S = 60.0
TOTAL = 40


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = RunFolder(tmp_path / "run", RunSettings(run="one"), fragments=1)
    folder.write(0.0, "v", admitted("a"))
    for steps in range(1, 4):
        folder.on_figures("a", 2.0 * steps, told("p", steps, loss=3.0 / steps))
    folder.write(7.0, "s", MERGED)
    folder.evaluation(8.0, Judged(3.0, TOTAL), {"bits": 1.5})
    folder.close()
    (folder.path / "summary.json").write_text(json.dumps({"tokens": TOTAL, "yield": 0.5}))
    return folder.path


def test_a_library_that_is_missing_is_told_once_and_the_run_goes_on(run: Path) -> None:
    if find_spec("trackio") is not None:
        pytest.skip("trackio is installed")
    said: list[str] = []

    async def hub() -> None:
        async with (
            asyncio.timeout(LIMIT_S),
            sink_processes(("trackio",), run, said.append, end_s=LIMIT_S),
        ):
            pass

    asyncio.run(hub())
    (sentence,) = said
    assert sentence.startswith("trackio gets no more records: it needs trackio, which is not inst")
    assert sentence.endswith("pip install 'islands[trackio]'")


def test_a_sink_that_hangs_ends_the_run_no_later(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is left behind; a second one of its name would be refused."""
    library = tmp_path / "library"
    library.mkdir()
    hangs = "import threading\n\ndef init(**_):\n    threading.Event().wait()\n"
    (library / "trackio.py").write_text(hangs)
    paths = (str(library), str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    said: list[str] = []

    async def hub() -> None:
        async with (
            asyncio.timeout(LIMIT_S),
            sink_processes(("trackio",), run, said.append, end_s=0.1),
        ):
            pass

    asyncio.run(hub())
    found = re.fullmatch(r"trackio is still sending: process (\d+) goes on by itself", said[-1])
    assert found is not None
    (left,) = LEFT_BEHIND
    assert left.pid == int(found[1])
    left.kill()
    left.wait()
    LEFT_BEHIND.clear()


def test_a_sink_that_there_is_not_is_refused() -> None:
    from islands.protocol.errors import SettingsError
    from islands.run.coordinator import CoordinatorSettings
    from islands.settings.run_spec import RunSpec

    options = RunOptions(sinks=("wandb", "paper"))
    with pytest.raises(
        SettingsError, match="sinks names 'paper'; there are mlflow, trackio, wandb"
    ):
        CoordinatorSettings.of(options, RunSpec(), Path("runs"))


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of the libraries beneath it
def test_mlflow_agrees_to_the_token(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    pytest.importorskip("sqlalchemy", reason="MLflow keeps nothing here without SQLAlchemy")
    from mlflow.tracking import MlflowClient

    address = f"sqlite:///{run / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert [main(["mlflow", str(run)]) for _ in range(2)] == [0, 0]
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("islands")
    (kept,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(kept.info.run_id, "learners/a/loss")
    points = [(metric.step, metric.value) for metric in history]
    steps = [row for row in rows(run / "metrics.jsonl") if row["kind"] == "step"]
    assert points == [(row["run_tokens"], row["loss"]) for row in steps]
    assert kept.data.metrics["final/tokens"] == TOTAL
    assert kept.data.params["run"] == "one"


def test_wandb_keeps_a_run_offline(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main(["wandb", str(run)]) == 0
    assert list((run / "sinks" / "wandb").glob("offline-run-*/*.wandb"))


def test_every_row_of_a_run_but_events_has_its_points(run: Path) -> None:
    found = [points_of(row) for row in rows(run / "metrics.jsonl")]
    assert all(points is not None and points.values for points in found)
    assert [points.tokens for points in found if points is not None][-1] == TOTAL
