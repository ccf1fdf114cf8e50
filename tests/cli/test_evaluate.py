"""`islands model evaluate` on folders of runs that ended, were killed, or go on."""

import json
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from islands.cli.__main__ import main
from islands.protocol.identities import FinalVersions, Version
from islands.run.hosting.hub_address import HubAddress, write_hub_address
from islands.run.records.model_files import metadata_of, write_model
from islands.run.records.run_values import newest_values
from islands.tasks.factory import TASK_PATH, data_folders
from tests.cli.run_folders import OWN, SPEC, WIDTH, KilledRun
from tests.lab.study.regression import Regression

TRUTH = Regression(width=WIDTH).truth().astype(np.float32)


@pytest.fixture
def killed(tmp_path: Path) -> KilledRun:
    """A run that was killed at version 7 of one fragment and version 8 of the other."""
    run = KilledRun(tmp_path / "run")
    run.publish_all(6, {"weight": np.zeros_like(TRUTH)})
    run.durable.ledger.closed_processed = 4321
    run.publish_all(7, {"weight": TRUTH + np.float32(0.5)})
    run.publish(1, 8, run.plan.layout.disassemble({"weight": TRUTH + np.float32(0.5)})[1])
    return run


def test_a_killed_run_is_evaluated_at_its_newest_versions(
    killed: KilledRun, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat() for path in sorted(killed.folder.rglob("*"))}
    assert main(["model", "evaluate", str(killed.folder), *OWN, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["figures"] == pytest.approx({"loss": 0.25, "share": 0.5}, rel=1e-5)
    assert told["versions"] == ["1.7", "1.8"]
    assert (told["run"], told["tokens"], told["ended"]) == ("mine", 4321, None)
    after = {path: path.stat() for path in sorted(killed.folder.rglob("*"))}
    assert {path: stat.st_mtime_ns for path, stat in after.items()} == {
        path: stat.st_mtime_ns for path, stat in before.items()
    }


def test_people_are_told_figures_and_versions(
    killed: KilledRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "evaluate", str(killed.folder), *OWN]) == 0
    first, second, *figures = capsys.readouterr().out.splitlines()
    assert first.startswith("run mine (has not ended), 4,321 tokens, from ")
    assert second == "versions 1.7 to 1.8 of 2 fragments"
    assert [line.split() for line in figures] == [["loss", "0.25"], ["share", "0.5"]]


def test_a_copy_without_a_journal_has_the_exported_values(
    killed: KilledRun, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = killed.plan.layout
    cut = FinalVersions("tokens", 1234, (Version(1, 9), Version(1, 9)))
    values = layout.disassemble({"weight": TRUTH})
    shutil.rmtree(killed.folder / "journal")
    path = killed.folder / "final.safetensors"
    write_model(path, layout, values, metadata_of(SPEC, layout.fingerprint, cut))
    for lost in ("", "run.json", "plan.json"):
        if lost == "run.json":
            (killed.folder / "plan.json").unlink()
        if lost:
            (killed.folder / lost).unlink(missing_ok=True)
        assert main(["model", "evaluate", str(killed.folder), *OWN, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["tokens"], told["ended"]) == (1234, "tokens")
        assert told["figures"]["loss"] < 1e-12


def test_values_are_read_while_the_journal_is_written(killed: KilledRun) -> None:
    ended = threading.Event()

    def write() -> None:
        for number in range(9, 200):
            killed.publish_all(number, {"weight": np.full_like(TRUTH, number)})
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not ended.is_set() or not reads:
        found = newest_values(killed.folder)
        for piece, version in zip(
            killed.plan.layout.disassemble(found.arrays), found.cut.versions, strict=True
        ):
            if version.number > 8:
                assert set(piece.tolist()) == {float(version.number)}
        reads += 1
    writer.join()
    last = newest_values(killed.folder)
    assert last.cut.versions == (Version(1, 199), Version(1, 199))


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "folder is not set" in refused("model", "evaluate")
    missing = tmp_path / "nothing"
    assert f"there is no folder {missing}" in refused("model", "evaluate", str(missing))
    assert "is not the folder of a run" in refused("model", "evaluate", str(tmp_path))
    file = tmp_path / "file"
    file.touch()
    assert "is a file; name the folder" in refused("model", "evaluate", str(file))
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_run_without_values_says_so(tmp_path: Path, refused: Callable[..., str]) -> None:
    run = KilledRun(tmp_path / "run")
    assert "has published no values yet" in refused("model", "evaluate", str(run.folder))
    run.publish(0, 0, np.zeros(run.plan.layout.fragments[0].size, np.float32))
    assert "has published no values yet" in refused("model", "evaluate", str(run.folder))


def test_another_model_is_refused(killed: KilledRun, refused: Callable[..., str]) -> None:
    folder = str(killed.folder)
    told = refused("model", "evaluate", folder, *OWN, "--task_settings.width", "8")
    assert "is of another model: weight has shape (256, 256), the model's is (8, 8)" in told
    told = refused("model", "evaluate", folder, "--task", "no_such_module:Task")
    assert "task 'no_such_module:Task' cannot be loaded on this host" in told
    told = refused("model", "evaluate", folder, *OWN, "--task_settings.depth", "8")
    assert "refuses its settings" in told


def test_a_task_that_differs_only_in_its_data_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = KilledRun(tmp_path / "run", replace(SPEC, task="tests.cli.test_evaluate:Labelled"))
    run.publish_all(0, {"weight": TRUTH})
    arguments = [
        "model",
        "evaluate",
        str(run.folder),
        "--task",
        "tests.lab.study.regression:Regression",
    ]
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert "loss" in told.out
    assert "the task differs: here task = Regression; there corpus = other" in told.err


class Labelled(Regression):
    """The same model over another corpus."""

    def labels(self) -> dict[str, str]:
        return {"corpus": "other"}


def test_an_evaluation_that_fails_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = KilledRun(tmp_path / "run", replace(SPEC, task="tests.cli.test_evaluate:Failing"))
    run.publish_all(0, {"weight": TRUTH})
    assert main(["model", "evaluate", str(run.folder), "--task", run.spec.task]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "test_evaluate.py" in last
    assert "the task's evaluation failed" in last


class Failing(Regression):
    """A task whose evaluation raises."""

    def evaluate(self, params: object, state: object) -> dict[str, float]:
        message = "no such file"
        raise ValueError(message)


def test_a_journal_that_is_not_whole_is_refused(
    killed: KilledRun, refused: Callable[..., str]
) -> None:
    for path in (killed.folder / "journal").glob("fragment-00001.*"):
        content = bytearray(path.read_bytes())
        content[-20] ^= 1
        path.write_bytes(content)
    told = refused("model", "evaluate", str(killed.folder), *OWN)
    assert "neither file of fragment-00001 holds a record that is whole" in told


def test_data_are_found_where_the_runs_hub_found_them(
    killed: KilledRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TASK_PATH, "")
    write_hub_address(
        killed.folder, HubAddress("ws://a:1/supervisor", "mine", task_folders=("/elsewhere",))
    )
    searched = [*sys.path]
    assert main(["model", "evaluate", str(killed.folder), *OWN, "--json"]) == 0
    assert data_folders()[0] == Path("/elsewhere")
    assert sys.path == searched
