"""One checkpoint is resumed with other numbers of learners: books, figures, evaluation go on."""

from pathlib import Path

import msgspec
import pytest

from islands.keeping.finding import find
from tests.integration.programs import (
    Room,
    entries,
    imbalance,
    open_room,
    processed,
    summary_of,
    write_config,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

BUDGET = 16_000


async def trained(room: Room, folder: Path, learners: int, budget: int, *resume: object) -> None:
    """Train to a budget, after what the run begins with was evaluated; everything is in order."""
    config = write_config(room.folder / "run.yaml", run={"budget_tokens": budget})
    judged = len(evaluations(folder))
    told = room.start(
        *("islands.cli", "run", config, "--folder", folder),
        *("--learners", 0 if resume else learners),
        *("--checkpoint_every", 20, "--evaluate_every_s", 0.2, *resume),
    )
    if resume:
        await room.wait(lambda: evaluations(folder)[judged:])
        added = await room.run("islands.cli", "add", learners, "--folder", folder)
        assert added.process.returncode == 0, added
    assert await room.ended(told) == 0, told
    assert "nobody knows" not in told.err
    checked = await room.run("islands.cli", "verify", folder)
    assert checked.process.returncode == 0, checked
    summary = summary_of(folder)
    assert summary is not None
    assert imbalance(summary) == 0
    assert set(processed(summary)) == {budget}
    rows = msgspec.convert(summary["learners"], dict[str, dict[str, float]])
    assert sum(row["tokens"] for row in rows.values()) == budget
    assert all(row["merged_at_all"] <= 1 for row in rows.values())


def evaluations(folder: Path, seen: int = 0) -> list[tuple[float, float]]:
    """Tokens and figure of each evaluation after so many."""
    rows = entries(folder / "metrics.jsonl", "evaluation")[seen:]
    found = ((each["tokens"], each["moved"]) for each in rows)
    return [msgspec.convert(each, tuple[float, float]) for each in found]


def told_tokens(folder: Path, seen: int = 0) -> list[int]:
    """The run's tokens in rows of learners and merges after so many."""
    rows = entries(folder / "metrics.jsonl")
    return [int(str(each["run_tokens"])) for each in rows if "run_tokens" in each][seen:]


@pytest.mark.long("tests/run/test_run_folder.py::test_a_run_that_went_back_counts_from_there")
async def test_two_four_and_one_learner_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    chain = (("two", 2, ""), ("four", 4, "two"), ("one", 1, "four"))
    async with open_room(tmp_path) as room:
        for name, learners, before in chain:
            folder, earlier = tmp_path / name, tmp_path / before
            if not before:
                await trained(room, folder, learners, BUDGET)
                continue
            tokens = find(str(earlier), folder).manifest.tokens
            await trained(room, folder, learners, tokens + BUDGET, "--resume", earlier)
            assert not (folder / "set_aside").exists()
            assert evaluations(folder)[0] == evaluations(earlier)[-1]
            assert tokens <= min(told_tokens(folder))
            assert max(told_tokens(folder)) <= tokens + BUDGET


@pytest.mark.long("tests/run/test_run_folder.py::test_a_run_that_went_back_counts_from_there")
async def test_a_run_goes_back_in_its_folder_with_one_learner(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    async with open_room(tmp_path) as room:
        await trained(room, folder, 2, BUDGET)
        wished = find("auto", folder).store.names()[0].partition("-")[2]
        tokens = find(wished, folder).manifest.tokens
        assert tokens < BUDGET
        judged, told = len(evaluations(folder)), len(told_tokens(folder))
        await trained(room, folder, 1, 2 * BUDGET, "--resume", wished)
    assert evaluations(folder, judged)[0][0] <= tokens
    assert min(told_tokens(folder, told)) >= tokens
    assert told_tokens(folder, told)[0] < BUDGET
    assert max(told_tokens(folder, told)) <= 2 * BUDGET
