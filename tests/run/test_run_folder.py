"""What a run leaves behind, and the figures it is judged by."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from islands.model.evaluation import Judged
from islands.protocol.errors import UserError
from islands.protocol.identities import SUPERVISOR, SYNCER, LearnerName, Phase, Role, Status
from islands.protocol.messages.control import COUNT_MAX, TOTAL_MAX, Note, StepFigures
from islands.protocol.messages.membership import NOT_FINITE
from islands.protocol.running_statistics import DurationHistogram
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.ledger import Ledger
from islands.protocol.tape import member_entries
from islands.protocol.tape.kinds import NOTABLE
from islands.protocol.tape.learner_entries import MomentsKept
from islands.protocol.tape.process_entries import RunDiverged, Started
from islands.protocol.tape.round_entries import AskedAgain, Closing, DataEnded, Extended, LeftOut
from islands.run.records import run_folder
from islands.run.records.figures import ENDED_KEPT, PROCESSES_KEPT, LearnerFigures, gone_back
from islands.run.records.notes import CHARACTERS_MAX, NOTED, is_kept
from islands.run.records.run_folder import RunFolder, versions
from islands.run.run_status import Health, state_of
from tests.protocol.tape.samples import MERGED, admitted, evicted
from tests.unscanned import Unscanned

Row = dict[str, object]


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps_of(folder: RunFolder) -> list[Row]:
    return [row for row in rows(folder.path / "metrics.jsonl") if row["kind"] == "step"]


def taped(folder: RunFolder) -> list[Row]:
    """The entries of a folder's tape, after the one that says its version."""
    head, *entries = rows(folder.path / "tape.jsonl")
    assert head["kind"] == "tape"
    return entries


# ------------------------------------------------------------------------------------ the folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    folder = RunFolder(tmp_path / "runs" / "one", RunSettings(run="one", budget_tokens=7))
    yield folder
    folder.close()


def anew(folder: RunFolder) -> RunFolder:
    """The folder as the next start of its hub opens it, once this one has ended."""
    folder.close()
    return RunFolder(folder.path, RunSettings(run="one", budget_tokens=7))


def test_what_is_known_is_written_at_once(folder: RunFolder) -> None:
    told = json.loads((folder.path / "settings.json").read_text())
    assert (told["run"], told["budget_tokens"], told["timing"]["evict_s"]) == ("one", 7, 5.0)
    assert json.loads((folder.path / "versions.json").read_text()) == versions()


def test_a_folder_that_cannot_be_written_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/run cannot be written: Not a directory"):
        RunFolder(tmp_path / "file" / "run", RunSettings())


def test_steps_are_written_once_a_second(folder: RunFolder) -> None:
    for step in range(513):
        folder.on_figures("a", step / 128, told("p", step, loss=5 - step / 250, gap_s=1e-4))
    folder.close()
    every = rows(folder.path / "metrics.jsonl")
    assert [row["kind"] for row in every] == ["run", "step"] * 4
    written = steps_of(folder)
    assert [row["steps"] for row in written] == [1, 129, 257, 385]
    assert written[-1].keys() >= {"learner", "tokens", "loss", "loss_smoothed", "step_time_s"}
    losses = [loss for _, loss in folder.figures.losses.all()]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 4, "a point a second"


def test_steps_told_after_a_learner_left_are_not_drawn_as_if_it_were_back(
    folder: RunFolder,
) -> None:
    folder.write(0.0, "v", admitted("a"))
    folder.on_figures("a", 1.0, told("p", 1))
    folder.write(2.0, "v", member_entries.Left("a", "1.1", "the run is over"))
    folder.on_figures("a", 2.5, told("p", 2))
    assert folder.figures.learners["a"].steps == 2
    assert folder.figures.learners["a"].states[-1] == (2.0, "left")


def test_a_loss_that_is_no_number_does_not_break_the_files(folder: RunFolder) -> None:
    folder.on_figures("a", 0.0, told("p", 1, loss=float("nan")))
    folder.on_figures("a", 2.0, told("p", 2, loss=1.0))
    folder.close()
    losses = [row["loss"] for row in steps_of(folder)]
    assert losses == [None, 1.0]
    assert folder.figures.learners["a"].loss == 1.0, "the smoothed loss forgets it"


def test_every_eviction_counts_whoever_it_is_of(folder: RunFolder) -> None:
    folder.write(0.1, "v", admitted("w", "1.1", Role.OBSERVER))
    for evictions, name in enumerate(("w", "syncer", "nobody knows it"), start=1):
        folder.write(0.2, "v", evicted(name))
        assert folder.figures.evictions == evictions
    assert not folder.figures.learners


def test_the_tape_feeds_figures_metrics_and_log(folder: RunFolder) -> None:
    folder.write(0.1, "v", admitted())
    folder.write(0.2, "v", admitted("s", "1.2", Role.SYNCER))
    folder.write(0.3, "v", member_entries.StatusChanged("a", Status.SUSPECT))
    assert folder.figures.learners.keys() == {"a"}
    assert folder.figures.learners["a"].status == "suspect"
    folder.write(0.4, "v", evicted())
    folder.write(0.5, "v", admitted("a", "1.3"))
    folder.write(0.6, "s", MERGED)
    folder.evaluation(0.7, Judged(3.0, 30), {"loss": 1.5})
    folder.close()
    assert folder.figures.learners["a"].incarnations == 2
    assert folder.figures.learners["a"].status == "live"
    assert folder.figures.merges == 1
    assert folder.figures.evaluations[0]["loss"] == 1.5
    written = [row["kind"] for row in rows(folder.path / "metrics.jsonl")]
    assert written == ["event", "merge", "evaluation"]
    log = rows(folder.path / "run.log")
    assert [entry["event"] for entry in log] == ["admitted"] * 2 + ["status", "evicted", "admitted"]
    assert all(str(entry["timestamp"]).endswith("Z") for entry in log)
    assert len(taped(folder)) == 6
    assert [event.split("  ")[-1] for event in folder.figures.events] == [
        *("a joined", "a is not heard", "a was evicted: silent", "a is back")
    ]
    assert (folder.figures.evictions, folder.figures.merged_tokens) == (1, 40)
    assert folder.figures.yield_of(2, 100) == 0.2


def test_that_a_run_has_diverged_is_a_warning_until_it_goes_on(folder: RunFolder) -> None:
    told = RunDiverged("its loss is 9", "the run is paused", "x/1-4", 7, "islands")
    folder.write(0.1, "hub", told)
    folder.write(0.2, "s", member_entries.Paused())
    sentence = "the run has diverged: its loss is 9; the run is paused"
    assert folder.figures.warning == sentence
    assert any(sentence in event for event in folder.figures.events)
    folder.write(0.3, "s", member_entries.Resumed())
    assert folder.figures.warning == ""


def test_a_learner_is_shown_as_diverged_until_a_step_goes_well(folder: RunFolder) -> None:
    def shown() -> str:
        return state_of(folder.figures.learners["a"], Phase.STEPPING)[0]

    folder.write(0.1, "v", admitted())
    assert shown() == "stepping"
    folder.write(0.2, "s", member_entries.Diverged("a", "1.1", 1))
    folder.write(0.3, "v", member_entries.Left("a", "1.1", NOT_FINITE))
    folder.write(0.3, "v", admitted("a", "1.2"))
    assert shown() == "diverged"
    assert len(folder.figures.events) == 2, "it joined, and begins again: no more is told"
    folder.on_figures("a", 0.4, told("p", 1, loss=float("nan")))
    assert shown() == "diverged"
    folder.on_figures("a", 0.5, told("p", 2, loss=1.0))
    assert shown() == "stepping"


def test_listeners_hear_of_every_change(folder: RunFolder) -> None:
    heard: list[int] = []
    folder.listeners.append(lambda: heard.append(folder.figures.merges))
    folder.write(0.0, "s", MERGED)
    folder.on_figures("a", 0.0, told("p", 1))
    assert heard == [1, 1]


# -------------------------------------------------------------------------- from other processes


def told(process: str, steps: int, *, loss: float = 2.0, gap_s: float = 0.0) -> StepFigures:
    histogram = DurationHistogram()
    histogram.add(gap_s)
    return StepFigures(
        process=process,
        steps=steps,
        tokens=10 * steps,
        stepping_s=0.1 * steps,
        step_time_s=0.1,
        loss=loss,
        gap_s=gap_s,
        data_wait_s=0.0,
        gap_bins=histogram.bins,
        gap_largest_s=gap_s,
        bytes_up=100 * steps,
        bytes_down=200 * steps,
    )


def test_a_run_that_went_back_counts_from_there(folder: RunFolder) -> None:
    ledger = Ledger.of(2)
    ledger.closed[LearnerName("a")] = ledger.closed_processed = 600
    for totals in ledger.totals:
        totals.applied = 600
    folder.on_figures("a", 20.0, told("p", 100))
    folder.figures.learners["a"].merged_tokens = 2 * 1000
    folder.keep(20.0)
    folder.close()
    gone_back(folder.path, 30, ledger)
    again = anew(folder)
    assert (again.tokens, again.figures.unbooked, again.figures.merges) == (600, 400, 30)
    assert again.figures.yield_of(2, again.tokens) == 1
    again.on_figures("a", 1.0, told("q", 5))
    assert again.tokens == 650
    row = again.figures.learners["a"]
    assert (row.tokens, row.merged_tokens) == (650, 1200)
    again.on_figures("a", 1.0, told("p", 120))
    assert (again.tokens, row.steps) == (650, 105), "what nobody booked is not counted"
    again.on_figures("a", 2.0, told("p", 127))
    assert (again.tokens, row.steps) == (720, 112), "and it counts from then on"
    again.close()


def test_a_run_that_begins_at_a_checkpoint_counts_from_there(tmp_path: Path) -> None:
    ledger = Ledger.of(2)
    ledger.closed_processed = 600
    gone_back(tmp_path, 30, ledger)
    folder = RunFolder(tmp_path, RunSettings(run="one"))
    folder.on_figures("b", 0.0, told("p", 5))
    folder.on_figures("c", 2.0, told("lived on", 1000))
    folder.on_figures("c", 2.1, told("lived on", 1001))
    folder.close()
    assert folder.tokens == 660
    assert [row["run_tokens"] for row in steps_of(folder)] == [650, 660]


def test_a_process_and_its_successor_that_tell_in_turn_count_once_each(folder: RunFolder) -> None:
    for steps in range(1, 6):
        for process in ("cut off", "successor"):
            folder.on_figures("a", float(steps), told(process, steps))
    for number in range(20):
        folder.on_figures("a", 6.0, told(f"restart {number}", 1))
    figures = folder.figures.learners["a"]
    assert (figures.steps, figures.tokens, figures.bytes_up) == (30, 300, 3000)
    assert figures.gaps.count == 22
    assert len([report for report in figures.processes.values() if report]) == PROCESSES_KEPT


def test_a_process_that_tells_after_many_others_counts_once(folder: RunFolder) -> None:
    for number in range(PROCESSES_KEPT + ENDED_KEPT):
        folder.on_figures("a", 1.0, told(f"process {number}", 10))
    folder.on_figures("a", 2.0, told("process 0", 11))
    figures = folder.figures.learners["a"]
    assert figures.tokens == folder.figures.tokens == (PROCESSES_KEPT + ENDED_KEPT) * 100
    assert len(figures.processes) == PROCESSES_KEPT + ENDED_KEPT


def test_reports_of_one_process_are_cumulative_and_of_two_add_up(folder: RunFolder) -> None:
    """A repeated report counts once; what a process did before it was killed still counts."""
    for report_ in (told("a", 5), told("a", 7, gap_s=0.5), told("a", 7, gap_s=0.5), told("b", 2)):
        folder.on_figures("learner-0", 1.0, report_)
    figures = folder.figures.learners["learner-0"]
    assert (figures.steps, figures.tokens) == (9, 90)
    assert (figures.bytes_up, figures.bytes_down) == (900, 1800)
    assert figures.stepping_s == pytest.approx(0.9)
    assert figures.gaps.largest_s == 0.5
    assert figures.gaps.count == 2
    assert folder.figures.tokens == 90


def test_a_hub_in_anothers_place_counts_what_was_stepped_since_it_began(folder: RunFolder) -> None:
    """Its learners trained for long before: a share of its own time is none of that."""
    folder.on_figures("a", 4.0, told("process", 1000))
    folder.on_figures("a", 8.0, told("process", 1020))
    assert folder.figures.goodput(8.0) == pytest.approx(0.25), "2 of 8 s, as 4 are not known"
    assert folder.figures.learners["a"].tokens == 200


def test_what_one_of_many_tells_asks_nobody_else(folder: RunFolder) -> None:
    for index in range(600):
        folder.on_figures(f"n{index}", 0.0, told("p", 1))
    folder.figures.learners = Unscanned(folder.figures.learners)
    folder.on_figures("n7", 2.0, told("p", 3))
    folder.on_figures("n7", 4.0, told("q", 1))
    assert [tokens for tokens, _ in folder.figures.losses.all()][-2:] == [6020, 6030]


def test_a_note_of_another_process_is_kept_and_counted(folder: RunFolder) -> None:
    fields = msgspec.json.encode(structs.replace(MERGED, contributions=2)).decode()
    folder.on_note("syncer", Role.SYNCER, 2.0, Note("merged", fields))
    folder.close()
    assert folder.figures.merges == 1
    merges = [row for row in rows(folder.path / "metrics.jsonl") if row["kind"] == "merge"]
    assert [row["contributions"] for row in merges] == [2]
    assert taped(folder)[0]["actor"] == "syncer"


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("merged", "{}"),
        ("merged", "no JSON"),
        ("anything", "{}"),
        ("merged", '{"fragment":0,"contributions":0,"direction_norm":null,"cosine":0}'),
        ("merged", '{"fragment":0,"contributions":0,"direction_norm":1,"cosine":"x"}'),
        ("merged", '{"fragment":0,"contributions":[],"direction_norm":1,"cosine":1}'),
        ("status", '{"name":' * 9000 + "1" + "}" * 9000),
    ],
)
def test_a_note_of_a_faulty_member_harms_nothing(folder: RunFolder, kind: str, fields: str) -> None:
    folder.on_note("a", Role.SYNCER, 1.0, Note(kind, fields))
    folder.close()
    assert folder.figures.merges == 0
    assert not [row for row in rows(folder.path / "metrics.jsonl") if row["kind"] == "merge"]


@pytest.mark.parametrize(
    "changed", [{"contributions": 10**400}, {"merged_tokens": -(10**400)}, {"clock": 1e308}]
)
def test_a_note_of_numbers_beyond_all_bounds_harms_nothing(
    folder: RunFolder, changed: dict[str, float]
) -> None:
    lie = msgspec.json.encode(structs.asdict(MERGED) | changed).decode()
    folder.on_note("a", Role.SYNCER, 1.0, Note("merged", lie))
    folder.write(2.0, "s", MERGED)
    folder.close()
    assert folder.lost == 0


def test_what_a_picture_marks_is_among_the_metrics(folder: RunFolder) -> None:
    """Deaths, evictions, extensions, checkpoints and later starts of the hub, at the run's tokens.

    A process that ended as it should is no death, nor is a checkpoint that failed a checkpoint.
    """
    folder.on_figures("a", 0.0, told("p", 1))
    for actor, entry in (
        ("supervisor", Started(1)),
        ("supervisor", Started(2)),
        ("syncer", Started(2)),
        ("hub", member_entries.ProcessEnded("a", error="killed by SIGKILL")),
        ("supervisor", member_entries.ProcessEnded("a", reason="killed by SIGKILL")),
        ("hub", member_entries.ProcessEnded("a", error="")),
        ("supervisor", evicted()),
        ("syncer", Extended(20, 10, "tokens")),
        ("a", MomentsKept("")),
        ("a", MomentsKept("the disk is full")),
    ):
        folder.write(1.0, actor, entry)
    folder.close()
    events = [row for row in rows(folder.path / "metrics.jsonl") if row["kind"] == "event"]
    assert [(row["event"], row["name"]) for row in events] == [
        *(("hub_started", "supervisor"), ("killed", "a"), ("evicted", "a")),
        *(("extended", ""), ("checkpoint", "a")),
    ]
    assert {row["run_tokens"] for row in events} == {10}


@pytest.mark.parametrize("kind", ["admitted", "status", "evicted", "merged", "closing", "left"])
def test_a_learner_decides_nothing_by_a_note(folder: RunFolder, kind: str) -> None:
    folder.write(0.0, "v", admitted("b"))
    merged = {"fragment": 1, "contributions": 1, "direction_norm": 2.0, "cosine": 0.5}
    fields = {"name": "b", "role": "learner", "status": "evicted", "told": "x", **merged}
    note = Note(kind, json.dumps({**fields, "fragments": 1}))
    folder.on_note("liar", Role.LEARNER, 1.0, note)
    folder.close()
    assert (folder.figures.merges, folder.figures.warning) == (0, "")
    assert folder.figures.learners["b"].status == "live"
    assert len(taped(folder)) == len(rows(folder.path / "run.log")) == 1


def test_a_note_is_written_under_the_name_of_its_member(folder: RunFolder) -> None:
    forged = {"actor": "supervisor", "event": "evicted", "at_s": 9, "name": "b", "reason": "x"}
    forged |= {"timestamp": "2000-01-01T00:00:00Z", "waited_s": 0.0}
    folder.on_note(
        "liar", Role.LEARNER, 0.5, Note("moments_fresh", json.dumps({**forged, "kind": "evicted"}))
    )
    folder.on_note("liar", Role.LEARNER, 1.0, Note("moments_fresh", json.dumps(forged)))
    folder.close()
    (entry,) = taped(folder)
    assert (entry["at_s"], entry["actor"], entry["kind"]) == (1.0, "liar", "moments_fresh")
    (line,) = rows(folder.path / "run.log")
    assert (line["at_s"], line["actor"], line["event"]) == (1.0, "liar", "moments_fresh")
    assert line["timestamp"] != forged["timestamp"]


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": 2**62},
        {"steps": -1},
        {"stepping_s": float("inf")},
        {"gap_largest_s": float("nan")},
        {"gap_bins": ((10**9, 1),)},
        {"gap_bins": ((0, COUNT_MAX), (1, COUNT_MAX))},
        {"gap_bins": ((0, -1),)},
        {"gap_bins": ((0, 1), (1, -1))},
    ],
)
def test_figures_that_cannot_be_added_up_are_forgotten(
    folder: RunFolder, changed: dict[str, object]
) -> None:
    told = StepFigures("p", 1, 10, 0.1, 0.1, 2.0, 0.0, 0.0, ((0, 1),), 1.0, 1, 1)
    folder.on_figures("a", 1.0, replace(told, **changed))  # type: ignore[arg-type]
    assert folder.figures.tokens == 0
    folder.on_figures("a", 2.0, told)
    assert folder.figures.tokens == 10
    assert 0 < folder.figures.gaps.quantile(0.999) <= 1.0


def test_a_liar_of_many_processes_ends_no_hub(folder: RunFolder) -> None:
    bins = tuple((index, COUNT_MAX // 64) for index in range(64))
    counts = dict.fromkeys(("steps", "tokens", "bytes_up", "bytes_down"), COUNT_MAX)
    lie = replace(told("p", 1), **counts, gap_bins=bins, stepping_s=1e308)  # type: ignore[arg-type]
    for number in range(300):
        folder.on_figures("liar", 1.0, told(f"p{number}", number % 2))
        folder.on_figures("liar", 1.0, replace(lie, process=f"p{number}"))
        folder.on_figures("liar", 1.0, replace(lie, process=f"first of {number}"))
    assert folder.figures.tokens == COUNT_MAX
    folder.on_figures("a", 2.0, told("p", 5))
    assert folder.figures.tokens == COUNT_MAX + 50
    folder.keep(3.0)
    again = anew(folder)
    again.on_figures("a", 4.0, told("p", 7))
    again.close()
    assert again.figures.tokens == COUNT_MAX + 70
    assert again.figures.learners["liar"].bytes_up == COUNT_MAX


def test_a_hub_begins_again_with_totals_that_no_file_holds(folder: RunFolder) -> None:
    folder.figures.learners["liar"] = LearnerFigures(steps=2**63, tokens=2**63)
    folder.figures.merged_tokens = 2**63
    folder.keep(1.0)
    again = anew(folder)
    again.on_figures("a", 2.0, told("p", 5))
    again.on_figures("liar", 4.0, told("p", 5))
    again.write(5.0, "s", MERGED)
    again.keep(6.0)
    again.close()
    assert again.lost == 0
    assert again.figures.tokens == COUNT_MAX + 50
    assert again.figures.merged_tokens == TOTAL_MAX


def test_a_hub_that_is_started_again_goes_on_counting(folder: RunFolder) -> None:
    folder.on_figures("a", 1.0, told("gone", 5))
    folder.on_figures("a", 2.0, told("alive", 7, gap_s=0.5))
    folder.evaluation(3.0, Judged(1.0, 40), {"loss": 0.5})
    folder.write(3.0, "s", MERGED)
    folder.write(3.0, "v", evicted())
    curve = folder.figures.losses.all()
    folder.keep(4.0)
    again = anew(folder)
    assert again.earlier_s == 4.0
    assert again.figures.tokens == 120
    assert [row["loss"] for row in again.figures.evaluations] == [0.5]
    kept = again.figures
    assert (kept.merges, kept.merged_tokens, kept.evictions, kept.clock) == (1, 40, 1, 6.0)
    assert kept.losses.all() == curve
    assert kept.work.total_s(99.0) == 3.0
    again.on_figures("a", 1.0, told("alive", 9, gap_s=0.5))
    again.close()
    figures = again.figures.learners["a"]
    assert (figures.steps, figures.gaps.count, figures.gaps.largest_s) == (14, 2, 0.5)


@pytest.mark.parametrize(("learners", "kept"), [(1, 12), (128, 7)])
def test_figures_of_a_large_fleet_are_kept_less_often(
    folder: RunFolder, learners: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "KEPT_BYTES_PER_S", run_folder.KEPT_BYTES_PER_S // 32)
    bins = tuple((index, 1000 + index) for index in range(60))
    for number in range(learners):
        folder.on_figures(f"n{number}", 0.0, replace(told("p", 1), gap_bins=bins))
    folder.keep(0.0)
    times: list[float] = []
    keep = folder.keep

    def kept_at(at_s: float) -> None:
        times.append(at_s)
        keep(at_s)

    monkeypatch.setattr(folder, "keep", kept_at)
    for second in range(1, 61):
        folder.on_figures("n0", float(second), told("p", second))
    assert len(times) == kept


@pytest.mark.parametrize("field", ["loss", "step_time_s", "gap_s", "data_wait_s"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_figure_that_is_no_number_costs_no_other(
    folder: RunFolder, field: str, bad: float
) -> None:
    folder.on_figures("a", 1.0, replace(told("p", 5), **{field: bad}))  # type: ignore[arg-type]
    folder.evaluation(1.5, Judged(1.0, 40), {"bits": bad, "share": 0.5})
    folder.keep(2.0)
    again = anew(folder)
    again.close()
    assert again.figures.tokens == 50
    assert [row["share"] for row in again.figures.evaluations] == [0.5]


@pytest.mark.parametrize("damage", ["flipped", "cut", "removed"])
def test_kept_figures_that_are_damaged_harm_nothing_and_are_told(
    folder: RunFolder, damage: str
) -> None:
    folder.write(0.1, "v", admitted())
    folder.on_figures("a", 1.0, told("p", 5))
    folder.keep(2.0)
    folder.close()
    path = folder.path / "figures.json"
    said: list[str] = []
    content = bytearray(path.read_bytes())
    content[content.index(b'"steps":5') + 8] ^= 1
    path.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    if damage == "removed":
        path.unlink()
    again = RunFolder(folder.path, RunSettings(run="one", budget_tokens=7), say=said.append)
    again.close()
    assert again.figures.tokens == 0
    assert said == ["hub: damaged or missing: figures.json; the run goes on without"]
    assert rows(folder.path / "run.log")[-1]["files"] == ["figures.json"]
    last = RunFolder(folder.path, RunSettings(run="one", budget_tokens=7), say=said.append)
    last.close()
    assert len(said) == 1, "told once"


def test_a_rejoiner_has_no_loss_until_it_has_stepped(folder: RunFolder) -> None:
    folder.write(0.0, "v", admitted())
    folder.on_figures("a", 1.0, told("p", 5, loss=9.0))
    folder.write(2.0, "v", evicted())
    losses = [folder.figures.loss]
    folder.write(3.0, "v", admitted("a", "1.2"))
    losses.append(folder.figures.learners["a"].loss)
    folder.on_figures("a", 4.0, told("q", 1, loss=2.0))
    losses += [folder.figures.learners["a"].loss, folder.figures.loss]
    assert losses == [None, None, 2.0, 2.0], "who is away has no part in the loss of the run"


def test_learners_in_turn_make_no_zigzag(folder: RunFolder) -> None:
    for second in range(1, 60):
        for name, offset in (("a", 0.0), ("b", 4.0)):
            folder.on_figures(name, second, told("p", second, loss=offset + 60.0 / second))
    losses = [loss for _, loss in folder.figures.losses.all()]
    assert len(losses) == 59
    assert losses[1:] == sorted(losses[1:], reverse=True)


def test_pauses_and_the_end_of_a_run_are_seen(folder: RunFolder) -> None:
    seen = []
    for actor, entry in (("v", member_entries.StoodStill(3.0)), ("s", member_entries.Paused())):
        folder.write(1.0, actor, entry)
        seen.append(folder.figures.work.paused)
    folder.write(3.0, "s", member_entries.Resumed())
    assert [*seen, folder.figures.work.paused] == [False, True, False]
    folder.write(4.0, "s", Closing("tokens"))
    assert folder.figures.ending == "tokens"


def test_what_a_learner_did_when_is_kept_for_the_picture(folder: RunFolder) -> None:
    folder.write(1.0, "v", admitted())
    for second in range(2, 5):
        folder.on_figures("a", float(second), told("p", second))
    folder.write(5.0, "s", member_entries.Paused())
    folder.on_figures("a", 5.5, told("p", 6))  # a step that was under way
    folder.write(6.0, "s", member_entries.Resumed())
    folder.on_figures("a", 7.0, told("p", 7))
    folder.on_figures("a", 8.0, told("p", 8, loss=float("nan")))
    folder.write(9.0, "v", evicted())
    folder.keep(10.0)
    again = anew(folder)
    again.write(1.0, "v", admitted("a", "2.1"))
    again.draw(2.0)
    again.close()
    assert again.figures.learners["a"].states == [
        *((1.0, "starting"), (2.0, "stepping"), (5.0, "paused"), (7.0, "stepping")),
        *((8.0, "diverged"), (9.0, "away"), (11.0, "starting")),
    ]
    assert (again.path / "summary.png").read_bytes().startswith(b"\x89PNG")


def test_that_nobody_was_heard_while_all_compile_is_no_news(folder: RunFolder) -> None:
    compiling = [False]
    folder.compiling = lambda: compiling[0]
    folder.write(1.0, "v", member_entries.StoodStill(1.2))
    folder.on_figures("a", 2.0, told("p", 1))
    compiling[0] = True
    folder.write(3.0, "v", member_entries.StoodStill(1.3))
    compiling[0] = False
    folder.write(4.0, "v", member_entries.StoodStill(1.4))
    folder.close()
    assert [event.split("  ")[-1] for event in folder.figures.events] == ["v stood still for 1.4 s"]
    log = rows(folder.path / "run.log")
    assert [entry["gap_s"] for entry in log] == [1.2, 1.3, 1.4]


def test_a_hub_that_is_back_shows_nobody_as_live_whom_it_has_not_heard(folder: RunFolder) -> None:
    for name in ("a", "b", "c"):
        folder.write(0.1, "v", admitted(name))
        folder.on_figures(name, 1.0, told(f"{name}-1", 5))
    folder.write(1.5, "v", member_entries.Left("c", "1.1", "it is drained"))
    folder.keep(2.0)
    again = anew(folder)
    found = again.figures.learners
    assert [found[name].status for name in "abc"] == ["unheard", "unheard", "left"]
    assert state_of(found["a"], Phase.STEPPING) == ("unheard", Health.WAITING)
    assert found["a"].states[-1] == (2.0, "away")
    again.write(0.5, "v", member_entries.Recognised("a", "1.1"))
    again.write(0.6, "v", member_entries.Recognised("c", "1.1"))
    assert [found[name].status for name in "abc"] == ["live", "unheard", "left"]
    again.close()


def test_a_learner_that_only_a_killed_start_had_admitted_is_live(folder: RunFolder) -> None:
    folder.on_figures("a", 0.1, told("p", 3))
    assert state_of(folder.figures.learners["a"], Phase.STEPPING) == ("stepping", Health.WELL)


def test_a_silence_is_told_once_though_two_record_it(folder: RunFolder) -> None:
    folder.write(0.0, "supervisor", admitted("v"))
    folder.write(1.0, "supervisor", member_entries.StatusChanged("v", Status.SUSPECT))
    folder.write(1.1, "hub", member_entries.ProcessEnded("v", "killed by SIGKILL"))
    folder.write(1.2, "syncer", member_entries.StatusChanged("v", Status.SUSPECT))
    assert [event.split("  ")[-1] for event in folder.figures.events] == [
        "v joined",
        "v is not heard",
        "the process of v ended: killed by SIGKILL",
    ]


def test_data_that_has_ended_is_told_until_there_is_some(folder: RunFolder) -> None:
    folder.write(1.0, "syncer", DataEnded(1, 64))
    assert "the data has ended: none of the 64 shards" in folder.figures.warning
    folder.write(2.0, "syncer", DataEnded(0, 64))
    assert folder.figures.warning == ""
    folder.close()
    assert [entry["event"] for entry in rows(folder.path / "run.log")] == ["data_ended"] * 2


# ------------------------------------------------------------------ who is asked, and who evaluates


def test_who_is_left_out_is_known_until_it_is_asked_again(folder: RunFolder) -> None:
    left_out = LeftOut(LearnerName("a"), "two pulls unanswered", 12)
    folder.write(1.0, SUPERVISOR, admitted())
    folder.write(2.0, SYNCER, left_out)
    learner = folder.figures.learners["a"]
    assert learner.left_out == "two pulls unanswered"
    folder.write(3.0, SYNCER, AskedAgain(LearnerName("a"), 20, "two pulls unanswered"))
    assert learner.left_out == ""
    folder.write(4.0, SYNCER, left_out)
    folder.write(5.0, SUPERVISOR, admitted("a", "1.2"))
    assert learner.left_out == ""


def test_what_only_the_end_merged_is_counted_apart(folder: RunFolder) -> None:
    folder.write(1.0, SUPERVISOR, admitted())
    facts = {"tokens": [100], "behind": [0], "contributions": 1}
    folder.write(2.0, SYNCER, structs.replace(MERGED, **facts))
    folder.write(3.0, SYNCER, structs.replace(MERGED, **facts, belated=[60]))
    learner = folder.figures.learners["a"]
    assert (learner.merged_tokens, learner.belated_tokens, learner.unmerged) == (200, 60, 0)
    folder.write(4.0, SYNCER, structs.replace(MERGED, **facts, participants=[LearnerName("b")]))
    assert learner.unmerged == 1


@pytest.mark.parametrize(("role", "tokens"), [(Role.OBSERVER, [640]), (Role.LEARNER, [])])
def test_an_evaluation_elsewhere_counts_as_the_hubs_own(
    folder: RunFolder, role: Role, tokens: list[int]
) -> None:
    fields = {"clock": 3.0, "tokens": 640, "took_s": 0.5, "figures": {"accuracy": 0.75}}
    folder.on_note("eve", role, 2.0, Note("evaluation", json.dumps(fields)))
    folder.close()
    found = [row for row in rows(folder.path / "metrics.jsonl") if row["kind"] == "evaluation"]
    assert [row["tokens"] for row in found] == tokens
    assert {row["accuracy"] for row in found} <= {0.75}
    assert [row["tokens"] for row in folder.figures.evaluations] == tokens


def test_a_learners_long_note_is_dropped() -> None:
    for characters in (CHARACTERS_MAX, CHARACTERS_MAX + 1):
        note = Note("moments_fresh", "x" * characters)
        assert is_kept(Role.LEARNER, note) == (characters == CHARACTERS_MAX)


def test_each_kind_of_note_that_is_kept_is_somebodys() -> None:
    """The run's folder would else show a run as paused that goes on."""
    assert set().union(*NOTED.values()) <= NOTABLE
    assert not NOTED[Role.LEARNER] & {"merged", "admitted", "status", "finished", "diverged"}
    assert {"merged", "paused", "resumed"} <= NOTED[Role.SYNCER]
    assert "admitted" not in NOTED[Role.SYNCER]
