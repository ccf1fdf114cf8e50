"""Curves of a run as TensorBoard shows them."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from islands.files.growing_files import Spool
from islands.model.evaluation import Judged
from islands.protocol.settings.run import RunSettings
from islands.run.records.run_folder import RunFolder
from islands.sinks.tensorboard import LEARNERS_MOST, TensorBoard, table_of
from tests.board_reader import curves_in, events_in
from tests.protocol.tape.samples import MERGED, admitted
from tests.run.test_run_folder import told

SETTINGS = RunSettings(run="r", learning_rate=0.5, warmup_steps=0)
RUN_ROW = {"kind": "run", "at_s": 1.0, "tokens": 1, "loss": 1.0, "tokens_per_s": 8.0}


def test_learners_are_overlaid_over_the_tokens_of_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", SETTINGS, fragments=2)
    for name in ("a", "b"):
        folder.write(0.0, "v", admitted(name))
    for second in range(1, 4):
        for name, loss in (("a", 2.0), ("b", 4.0)):
            folder.on_figures(name, float(second), told(name, second, loss=loss))
    lists = {"participants": ["a", "b"], "behind": [0, 3]}
    merged = structs.replace(MERGED, merged_tokens=60, contributions=2, cosine=0.0, **lists)
    folder.write(4.0, "s", merged)
    folder.evaluation(5.0, Judged(3.0, 40), {"bits": 1.5})
    folder.close()
    board = folder.path / "tensorboard"
    assert sorted(path.name for path in board.iterdir()) == ["a", "b", "run"]
    assert curves_in(board / "a")["loss"] == [(10, 2.0), (30, 2.0), (50, 2.0)]
    assert curves_in(board / "b")["loss"] == [(20, 4.0), (40, 4.0), (60, 4.0)]
    run = curves_in(board / "run")
    assert run["loss"] == [(10, 2.0), (30, 3.0), (50, 3.0)]
    assert run["learning_rate"] == run["yield"] == [(60, 0.5)]
    assert run["evaluation/bits"] == [(40, 1.5)]
    assert run["merge/contributions"] == [(60, 2.0)]
    assert run["merge/staleness"] == [(60, 1.5)]
    assert [x for x, _ in run["tokens_per_s"]] == [10, 30, 50]


def test_each_learner_has_curves_of_all_that_its_rows_tell(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", SETTINGS, fragments=2)
    folder.write(0.0, "v", admitted("a"))
    folder.write(1.0, "s", MERGED)
    folder.write(2.0, "s", structs.replace(MERGED, participants=["a"], behind=[3]))
    report = replace(told("p", 4), metrics=(("accuracy", 0.75),))
    folder.on_figures("a", 3.0, report)
    folder.close()
    curves = curves_in(folder.path / "tensorboard" / "a")
    assert {name: points[-1][1] for name, points in curves.items()} == pytest.approx(
        {
            "loss": 2.0,
            "tokens_per_s": 100.0,
            "step_time_s": 0.1,
            "gap_s": 0.0,
            "data_wait_s": 0.0,
            "bytes_up": 400.0,
            "bytes_down": 800.0,
            "participation": 1.0,
            "staleness": 3.0,
            "metrics/accuracy": 0.75,
        }
    )


def test_a_step_beyond_what_an_event_holds_is_the_last_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    TensorBoard(tmp_path, spool, SETTINGS).record([{**RUN_ROW, "tokens": 2**70}])
    spool.close()
    assert curves_in(tmp_path / "run")["loss"] == [(2**63 - 1, 1.0)]


def test_the_settings_are_shown_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    board = TensorBoard(tmp_path, spool, SETTINGS)
    for tokens in (1, 2):
        board.record([{**RUN_ROW, "tokens": tokens}])
    spool.close()
    texts = [
        value.tensor.string_val[0].decode()
        for event in events_in(tmp_path / "run")
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "text"
    ]
    assert texts == [table_of(SETTINGS)]
    assert "| learning_rate | 0.5 |" in texts[0]
    assert "| outer.momentum | 0.0 |" in texts[0]


def test_without_tensorboard_a_run_goes_on_after_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "islands.sinks.tensorboard", None)
    said: list[str] = []
    folder = RunFolder(tmp_path / "run", SETTINGS, say=said.append)
    folder.write(0.0, "v", admitted("a"))
    folder.on_figures("a", 1.0, told("p", 1))
    folder.write(2.0, "s", MERGED)
    folder.evaluation(3.0, Judged(3.0, 40), {"bits": 1.5})
    folder.close()
    assert len(said) == 1
    assert "needs tensorboard, which is not installed; install it with: pip install" in said[0]
    assert not (folder.path / "tensorboard").exists()
    assert len((folder.path / "metrics.jsonl").read_text().splitlines()) == 4


def test_a_crowd_does_not_open_a_thousand_files(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    board = TensorBoard(tmp_path, spool, SETTINGS)
    for name in ("run", "../x", "", "a/b", *(f"n{index}" for index in range(1000))):
        board.record([{"kind": "step", "learner": name, "run_tokens": 1, "loss": 1.0}])
    spool.close()
    assert len(list(tmp_path.iterdir())) == LEARNERS_MOST
    assert not (tmp_path.parent / "x").exists()
