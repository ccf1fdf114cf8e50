"""What a run leaves behind, and the figures it is judged by."""

import json
from pathlib import Path

import numpy as np
import pytest

from islands.config import RunSettings
from islands.errors import UserError
from islands.learner.compute import StepReport
from islands.learner.events import StepFinished
from islands.telemetry import LOSSES_KEPT, GapHistogram, RunFolder, versions

Row = dict[str, object]


def report(steps: int, *, loss: float = 2.0, gap_s: float = 0.0, step_s: float = 0.1) -> StepReport:
    """A finished step of a process that takes 10 tokens per step."""
    return StepReport(
        StepFinished(steps, 10 * steps, step_s, finite=True, leases=()), loss, gap_s, 0
    )


def rows(path: Path) -> list[Row]:
    """A file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


# ------------------------------------------------------------------------------------- durations


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999, 1.0])
def test_quantiles_are_those_of_the_samples(share: float) -> None:
    """Over five decades, a quantile is at most 2.4 % above the exact one."""
    samples = 10 ** np.random.default_rng(0).uniform(-6, -1, 5000)
    histogram = GapHistogram()
    for sample in samples:
        histogram.add(float(sample))
    exact = float(np.quantile(samples, share, method="inverted_cdf"))
    assert exact <= histogram.quantile(share) <= 1.024 * exact
    assert histogram.quantile(1.0) == histogram.largest_s == samples.max()
    assert histogram.count == 5000


def test_no_gap_at_all_is_a_duration_too() -> None:
    """Zero is counted, and without samples the quantile is zero."""
    histogram = GapHistogram()
    assert histogram.quantile(0.999) == 0.0
    for _ in range(10):
        histogram.add(0.0)
    assert histogram.quantile(0.999) == 0.0
    histogram.add(3.0)
    assert histogram.quantile(0.9) < 1e-6
    assert histogram.quantile(0.999) == 3.0


def test_memory_is_bounded() -> None:
    """A million samples of any size occupy no more than the scale has marks."""
    histogram = GapHistogram()
    for exponent in np.linspace(-9, 4, 20_000):
        histogram.add(float(10**exponent))
    assert histogram.count == 20_000
    assert histogram.quantile(1.0) == 1e4
    scale = {histogram.quantile(share) for share in np.linspace(0, 1, 5000)}
    assert len(scale) <= 11 * GapHistogram.PER_DECADE + 2


# ------------------------------------------------------------------------------------ the folder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A folder at the start of a run."""
    return RunFolder(tmp_path / "runs" / "one", RunSettings(run="one", budget_tokens=7))


def test_what_is_known_is_written_at_once(folder: RunFolder) -> None:
    """Settings and versions are there before the first step, for a run that dies early."""
    told = json.loads((folder.path / "settings.json").read_text())
    assert (told["run"], told["budget_tokens"], told["timing"]["evict_s"]) == ("one", 7, 5.0)
    assert json.loads((folder.path / "versions.json").read_text()) == versions()
    folder.close()


def test_a_folder_that_cannot_be_written_is_the_users_to_mend(tmp_path: Path) -> None:
    """The sentence names the folder and what the system said."""
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/run cannot be written: Not a directory"):
        RunFolder(tmp_path / "file" / "run", RunSettings())


def test_totals_run_over_all_processes_of_a_learner(folder: RunFolder) -> None:
    """A restarted process counts from zero; the learner's figures go on."""
    folder.process_started("a")
    for steps in (1, 2, 3):
        folder.step("a", 0.1 * steps, report(steps))
    folder.traffic("a", bytes_up=5, bytes_down=6)
    folder.process_started("a")
    for steps in (1, 2):
        folder.step("a", 5 + 0.1 * steps, report(steps))
    folder.traffic("a", bytes_up=50, bytes_down=60)
    figures = folder.figures.learners["a"]
    assert (figures.steps, figures.tokens) == (5, 50)
    assert figures.stepping_s == pytest.approx(0.5)
    assert (figures.bytes_up, figures.bytes_down) == (55, 66)
    assert folder.figures.gaps.count == 5
    folder.close()


def test_steps_are_written_once_a_second(folder: RunFolder) -> None:
    """Rows of metrics do not grow with the speed of steps, and each is whole."""
    folder.process_started("a")
    for step in range(513):
        folder.step("a", step / 128, report(step, loss=5 - step / 250, gap_s=1e-4))
    folder.close()
    written = rows(folder.path / "metrics.jsonl")
    assert [row["kind"] for row in written] == ["step"] * 5
    assert [row["steps"] for row in written] == [0, 128, 256, 384, 512]
    assert written[-1].keys() >= {"learner", "tokens", "loss", "loss_smoothed", "step_time_s"}
    losses = [loss for _, loss in folder.figures.losses]
    assert losses == sorted(losses, reverse=True)
    assert len(folder.figures.losses) <= LOSSES_KEPT


def test_a_loss_that_is_no_number_does_not_break_the_files(folder: RunFolder) -> None:
    """A diverged learner is seen as such; the rows after it are written as before."""
    folder.process_started("a")
    folder.step("a", 0.0, report(1, loss=float("nan")))
    folder.step("a", 2.0, report(2, loss=1.0))
    folder.close()
    losses = [row["loss"] for row in rows(folder.path / "metrics.jsonl")]
    assert losses == [None, 1.0]
    assert folder.figures.learners["a"].loss == 1.0, "the smoothed loss forgets it"


def test_the_tape_feeds_figures_metrics_and_log(folder: RunFolder) -> None:
    """Admissions, statuses and merges are counted; the log has what a person wants to know."""
    folder.write(0.1, "v", "admitted", {"name": "a", "role": "learner", "incarnation": "1.1"})
    folder.write(0.2, "v", "admitted", {"name": "s", "role": "syncer", "incarnation": "1.2"})
    folder.write(0.3, "v", "status", {"name": "a", "status": "suspect"})
    assert folder.figures.learners.keys() == {"a"}
    assert folder.figures.learners["a"].status == "suspect"
    folder.write(0.4, "v", "evicted", {"name": "a", "incarnation": "1.1", "reason": "silent"})
    folder.write(0.5, "v", "admitted", {"name": "a", "role": "learner", "incarnation": "1.3"})
    merged = {"fragment": 1, "participants": ["a"], "direction_norm": 2.0, "cosine": 0.5}
    folder.write(0.6, "s", "merged", {**merged, "digest": "x"})
    folder.evaluation(0.7, 3.0, {"loss": 1.5})
    folder.close()
    assert folder.figures.learners["a"].incarnations == 2
    assert folder.figures.learners["a"].status == "live"
    assert folder.figures.merges == 1
    assert folder.figures.evaluations[0]["loss"] == 1.5
    assert [row["kind"] for row in rows(folder.path / "metrics.jsonl")] == ["merge", "evaluation"]
    log = rows(folder.path / "run.log")
    assert [entry["event"] for entry in log] == ["admitted"] * 2 + ["status", "evicted", "admitted"]
    assert all(str(entry["timestamp"]).endswith("Z") for entry in log)
    assert len(rows(folder.path / "tape.jsonl")) == 6
    assert len(folder.figures.events) == 5


def test_listeners_hear_of_every_change(folder: RunFolder) -> None:
    """Whoever shows the run, or waits for something in it, need not poll."""
    heard: list[int] = []
    folder.listeners.append(lambda: heard.append(folder.figures.merges))
    merged = {"fragment": 1, "participants": ["a"], "direction_norm": 2.0, "cosine": 0.5}
    folder.write(0.0, "s", "merged", dict(merged))
    folder.process_started("a")
    folder.step("a", 0.0, report(1))
    folder.close()
    assert heard == [1, 1]
