"""The real actors under faults drawn from a seed: no promise is broken, and then the run ends.

`--seeds N` plays the scenarios of the seeds 0 to N−1, `make simulate` 2000 of them. A failing seed
prints the line that plays it again; ``python -m islands.lab.world SEED`` does so without pytest.
"""

import pytest

from islands.lab.faults.fault import FaultKind
from islands.lab.world.__main__ import faults_done, verdict
from islands.lab.world.scenario import DISK_KINDS, HOST_KINDS, KINDS, Scenario, draw
from islands.lab.world.trial import play

pytestmark = pytest.mark.simulation


def test_seed_keeps_every_promise(seed: int) -> None:
    outcome = play(draw(seed))
    assert outcome.violations == (), verdict(outcome)


def test_schedules_hold_every_kind_of_fault() -> None:
    scenarios = [draw(number) for number in range(100)]
    injections = [injection for scenario in scenarios for injection in scenario.injections]
    drawn = {injection.kind for injection in injections}
    others = FaultKind.PAUSE, FaultKind.DRAIN, FaultKind.TAKE_OVER
    assert drawn == {*KINDS, *HOST_KINDS, *others}
    kills = [injection for injection in injections if injection.kind is FaultKind.KILL]
    for role in ("supervisor", "syncer", "learner-0"):
        assert any(kill.victims == (role,) for kill in kills)
    assert any(len(kill.victims) > 3 for kill in kills)
    assert any(set(kill.victims) == {"supervisor", "syncer"} for kill in kills)
    assert (FaultKind.FREEZE, ("syncer",)) in [
        (injection.kind, injection.victims) for injection in injections
    ]
    assert {injection.disk for injection in injections if injection.kind is FaultKind.DISK} == {
        *DISK_KINDS
    }
    assert any(kill.silent for kill in kills)
    assert any(kill.in_write for kill in kills)


def test_settings_are_varied() -> None:
    def drawn(scenario: Scenario) -> dict[str, object]:
        settings = scenario.settings
        return {
            "interval_steps": settings.interval_steps,
            "fragments": settings.fragments,
            "quorum": settings.quorum,
            "overlap_steps": settings.overlap_steps,
            "precision": settings.precision,
            "update precision": settings.update_precision,
            "merge": settings.merge,
            "outer step": settings.outer.optimizer,
            "turns": settings.trigger,
            "learners": len(scenario.hosts),
        }

    rows = [drawn(draw(number)) for number in range(100)]
    assert all(len({str(row[key]) for row in rows}) > 1 for key in rows[0])


def test_verdict_names_seed_faults_and_result() -> None:
    outcome = play(draw(0))
    told = verdict(outcome)
    assert told.startswith("seed 0: ")
    assert "0.114 s: kill of syncer" in told
    assert told.endswith("every promise kept")
    assert all(f"  {kind}: {count}" in told for kind, count in faults_done(outcome).items())
