"""The figures by which one judges a run, and what a run with a low yield is told at its end."""

from typing import cast

import pytest

from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.timeouts import end_reason
from islands.run.records.figures import LearnerFigures, RunFigures
from islands.run.records.summary import (
    LOW_YIELD,
    Outcome,
    SyncerShare,
    advice,
    data_advice,
    summarise,
)


def test_evictions_are_those_of_the_supervisor_over_all_its_starts() -> None:
    """Nobody else evicts: a learner that left, and came back at once, was not evicted."""
    share: SyncerShare = {"ledger": {}}
    summary = summarise(
        RunFigures(evictions=3), share, settings=RunSettings(), wall_s=1.0, figures={}
    )
    assert summary["evictions"] == 3


def test_learners_are_listed_as_a_person_counts() -> None:
    figures = RunFigures({f"learner-{index}": LearnerFigures() for index in (10, 2, 1)})
    summary = summarise(figures, {"ledger": {}}, settings=RunSettings(), wall_s=1.0, figures={})
    learners = cast("dict[str, object]", summary["learners"])
    assert [*learners] == ["learner-1", "learner-2", "learner-10"]


@pytest.mark.parametrize("reason", ["tokens", end_reason(RunSettings())])
def test_a_diverged_run_has_its_advice_in_its_reason(reason: str) -> None:
    row = {"processed": 100, "applied": 0, "lost": 100}
    share: SyncerShare = {
        "reason": reason,
        "yield": 0.0,
        "merges": 1,
        "ledger": {"fragments": [row]},
    }
    figures = RunFigures({"a": LearnerFigures(steps=10)})
    summary = summarise(figures, share, settings=RunSettings(), wall_s=1.0, figures={})
    assert bool(summary["advice"]) == (reason == "tokens")


FATES = ("rejected", "late", "stale", "overwritten", "lost", "pending")


def rows(processed: int, **fates: int) -> list[dict[str, int]]:
    """The ledger of two equal fragments; what is not said was applied."""
    row = {"processed": processed, "applied": processed - sum(fates.values())}
    return [{**row, **dict.fromkeys(FATES, 0), **fates}] * 2


def told(
    settings: RunSettings,
    ledger: list[dict[str, int]],
    *,
    belated: float = 0.0,
    steps: tuple[int, ...],
    merges: int,
) -> str:
    processed = max(1, sum(row["processed"] for row in ledger))
    applied = sum(row["applied"] for row in ledger) / processed
    share: SyncerShare = {"yield": applied - belated, "merges": merges}
    learners = {f"{index}": LearnerFigures(steps=each) for index, each in enumerate(steps)}
    return advice(Outcome.of({**share, "ledger": {"fragments": ledger}}, learners), settings)


def test_a_good_yield_needs_no_advice() -> None:
    good = rows(1000, overwritten=int(1000 * (1 - LOW_YIELD)))
    assert told(RunSettings(), good, steps=(100,), merges=8) == ""
    assert told(RunSettings(), rows(0), steps=(), merges=0) == ""


def test_the_digits_are_told_the_interval_that_was_measured_to_do() -> None:
    ledger = rows(100_271, overwritten=51_740)
    sentence = told(RunSettings(interval_steps=8), ledger, steps=(1567, 1566), merges=139)
    assert sentence.startswith("Only 48% was merged in time: of all tokens 52% were overwritten")
    assert "about 12 steps each time: set run.interval_steps to 120" in sentence
    assert "train for longer" not in sentence


@pytest.mark.parametrize(
    ("quorum", "remedy"), [(1, "set run.quorum to 3"), (3, "overlap"), (None, "overlap")]
)
def test_who_comes_too_late_is_waited_for(quorum: int | None, remedy: str) -> None:
    sentence = told(
        RunSettings(quorum=quorum), rows(1000, late=560), steps=(900, 900, 900), merges=60
    )
    assert "56% came too late for their round" in sentence
    assert remedy in sentence


def test_a_run_too_short_for_the_advised_interval_is_told_so() -> None:
    ledger = rows(60_000, overwritten=37_140)
    sentence = told(RunSettings(interval_steps=8), ledger, steps=(937, 938), merges=24)
    assert "set run.interval_steps to 490, and train for longer" in sentence


def test_what_only_the_end_merged_is_told() -> None:
    sentence = told(RunSettings(interval_steps=500), rows(1000), belated=0.9, steps=(9,), merges=2)
    assert "90% were merged only when the run ended" in sentence
    assert "run.interval_steps below 500" in sentence


@pytest.mark.parametrize("fate", ["stale", "rejected", "lost"])
def test_other_fates_are_told_with_where_to_look(fate: str) -> None:
    sentence = told(RunSettings(), rows(1000, **{fate: 300, "late": 200}), steps=(90,), merges=8)
    assert sentence.count("%") == 3
    assert "run." in sentence


def test_at_the_ends_of_the_range_numbers_stay_numbers() -> None:
    for steps, merges in ((1, 0), (1, 1), (10_000_000, 1), (10_000_000, 10_000_000)):
        sentence = told(RunSettings(), rows(1000, overwritten=999), steps=(steps,), merges=merges)
        assert "set run.interval_steps to " in sentence


@pytest.mark.parametrize(("share", "said"), [(0.0, ""), (0.029, ""), (0.031, "3%"), (0.5, "50%")])
def test_waiting_for_data_is_told_when_it_matters(share: float, said: str) -> None:
    sentence = data_advice(share)
    assert (said in sentence) if said else not sentence
