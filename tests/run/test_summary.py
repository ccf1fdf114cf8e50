"""The figures by which one judges a run."""

from typing import cast

import pytest

from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.watches import end_reason
from islands.run.records.figures import LearnerFigures, RunFigures
from islands.run.records.summary import SyncerShare, summarise


def test_evictions_are_those_of_the_supervisor_over_all_its_starts() -> None:
    """Nobody else evicts: a learner that left, and came back at once, was not evicted."""
    share: SyncerShare = {"ledger": {}}
    summary = summarise(
        RunFigures(evictions=3), share, settings=RunSettings(), wall_s=1.0, figures={}
    )
    assert summary["evictions"] == 3


def test_learners_are_listed_as_a_person_counts() -> None:
    """The tenth comes after the second."""
    figures = RunFigures({f"learner-{index}": LearnerFigures() for index in (10, 2, 1)})
    summary = summarise(figures, {"ledger": {}}, settings=RunSettings(), wall_s=1.0, figures={})
    learners = cast("dict[str, object]", summary["learners"])
    assert [*learners] == ["learner-1", "learner-2", "learner-10"]


@pytest.mark.parametrize("reason", ["tokens", end_reason(RunSettings())])
def test_a_diverged_run_has_its_advice_in_its_reason(reason: str) -> None:
    """That its tokens were lost is true, and not what to mend."""
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
