"""A run has one total of tokens, whichever output is read, and whoever died."""

from pathlib import Path
from typing import cast

import pytest

from islands.cli.screen import Screen
from islands.model.evaluation import Judged
from islands.protocol.identities import Status
from islands.protocol.messages.control import StepFigures
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.round_entries import Merged
from islands.run.records.figures import restored
from islands.run.records.run_curves import curves_of
from islands.run.records.run_folder import RunFolder
from islands.run.records.summary import OTHERS, Summary, SyncerShare, share_of, summarise
from tests.run.test_run_folder import rows
from tests.syncer.bench import BATCH, Bench, opened, seeded

SETTINGS = RunSettings(run="one", interval_steps=4, fragments=2, quorum=None)


def told(process: str, steps: int) -> StepFigures:
    spent = (process, steps, BATCH * steps, 0.1 * steps, 0.1, 2.0, 0.0, 0.0, ((0, steps),))
    return StepFigures(*spent, gap_largest_s=0.5, bytes_up=1, bytes_down=2)


def merge_all(bench: Bench, folder: RunFolder | None) -> None:
    """A round goes from its pulls to its commit; a hub that is there is sent the note."""
    for pull in opened(bench):
        bench.answer(pull)
    bench.merge()
    for entry in bench.entries(Merged) if folder is not None else ():
        folder.write(bench.now_s, "syncer", entry)  # type: ignore[union-attr]
    bench.journal()
    for name in sorted(bench.learners):
        bench.adopt(name)


def concluded(folder: RunFolder, share: SyncerShare) -> Summary:
    """A hub hears that the run is over, evaluates, and sums the run up."""
    folder.settle(share)
    found = folder.last_evaluation(9.0, "hub", {"bits": 1.5})
    summary = summarise(folder.figures, share, settings=SETTINGS, wall_s=9.0, figures=found)
    folder.keep(9.0)
    folder.draw(9.0)
    folder.close()
    return summary


def learners_of(summary: Summary) -> dict[str, dict[str, int]]:
    return cast("dict[str, dict[str, int]]", summary["learners"])


def agree(folder: RunFolder, summary: Summary) -> None:
    """Ledger, table, figures in memory and on disk, picture and last evaluation say the same."""
    total = summary["tokens"]
    ledger = cast("dict[str, list[dict[str, int]]]", summary["ledger"])
    assert {row["processed"] for row in ledger["fragments"]} == {total}
    assert sum(row["tokens"] for row in learners_of(summary).values()) == total
    assert folder.figures.tokens == folder.tokens == total
    last = rows(folder.path / "metrics.jsonl")[-1]
    assert (last["kind"], last["tokens"]) == ("evaluation", total)
    again = RunFolder(folder.path, SETTINGS, extend=True)
    again.close()
    assert again.figures.tokens == total
    assert again.figures.merges == folder.figures.merges == summary["merges"]
    share = folder.figures.yield_of(len(ledger["fragments"]), folder.tokens)
    assert share == summary["yield"], "the picture's"


def test_after_a_hubs_death_all_of_a_folder_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(tmp_path, SETTINGS, fragments=2)
    bench = seeded("ana", "ben", "cleo", settings=SETTINGS)
    merge_all(bench, folder)
    for name in ("ana", "ben", "cleo"):
        folder.on_figures(name, bench.now_s, told(f"{name}-1", bench.learners[name].steps))
    folder.close()  # killed: what it had counted was not kept
    merge_all(bench, None)
    bench.view("cleo", Status.EVICTED)
    del bench.learners["cleo"]
    again = RunFolder(tmp_path, SETTINGS, fragments=2)
    assert again.figures.tokens == 0
    merge_all(bench, again)
    booked = bench.core.durable.ledger.processed
    assert again.figures.tokens == booked, "the next merge tells a hub that is back"
    merge_all(bench, None)  # its note is lost
    booked = bench.core.durable.ledger.processed
    again.on_figures("ana", bench.now_s, told("ana-1", bench.learners["ana"].steps + 2))
    share = share_of(bench.state)
    summary = concluded(again, share)
    assert (summary["tokens"], summary["merges"]) == (booked, 4)
    assert summary["unbooked_tokens"] == 2 * BATCH
    table = {name: row["tokens"] for name, row in learners_of(summary).items()}
    ana = bench.learners["ana"].steps * BATCH
    assert table == {"ana": ana, OTHERS: booked - ana}, "of two the hub has heard nothing"
    agree(again, summary)
    Screen().conclude(again.figures, summary)
    shown = capsys.readouterr().out
    assert f"{booked:,}" in next(line for line in shown.splitlines() if "total" in line)
    assert f"Not in the total: {2 * BATCH:,} tokens" in shown


def test_a_report_after_the_end_changes_no_total(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, SETTINGS, fragments=2)
    folder.on_figures("ana", 1.0, told("p", 7))
    bench = seeded("ana", settings=SETTINGS)
    merge_all(bench, folder)
    summary = concluded(folder, share_of(bench.state))
    assert restored(tmp_path)[1].settled_yield == summary["yield"], "whoever reads the folder"
    extended = RunFolder(tmp_path, SETTINGS, fragments=2, extend=True)
    assert extended.figures.settled_yield is None, "it has more to merge"
    extended.on_figures("ana", 1.0, told("p", 8))
    assert extended.figures.tokens == summary["tokens"]
    extended.on_figures("ana", 2.0, told("q", 3))
    assert extended.figures.tokens == summary["tokens"] + 3 * BATCH
    extended.close()


def test_an_evaluation_is_drawn_where_its_values_were(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, SETTINGS, fragments=2)
    folder.on_figures("ana", 1.0, told("p", 7))
    folder.evaluation(30.0, Judged(0.0, 0, took_s=25.0), {"bits": 8.0})
    folder.close()
    found = curves_of(tmp_path).evaluations
    assert [*found] == ["bits"]
    assert found["bits"].all() == [(0, 5.0, 8.0)]
