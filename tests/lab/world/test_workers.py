"""The syncer's workers beside the real actors: what is heavy waits for nothing of another kind."""

from statistics import fmean

import pytest

from islands.lab.world.world import Costs, LearnerHost, NumpyTrainers
from islands.protocol.settings.run import RunSettings
from tests.lab.world.worlds import Entries, entries, lived

pytestmark = pytest.mark.simulation

LEARNERS = 8
STEP_S = 0.1
WARM_S = 4.0
LIVE_S = 8.0


def played(costs: Costs, *, fragments: int = 8) -> Entries:
    """The syncer's tape of a run with a round at every step, after it is warm."""
    settings = RunSettings(interval_steps=fragments, fragments=fragments, overlap_steps=fragments)
    host = LearnerHost(step_s=STEP_S, noise=0.0)
    hosts = {f"learner-{index}": host for index in range(LEARNERS)}
    trainers = NumpyTrainers(settings, shards=64)
    world = lived(settings, hosts, WARM_S + LIVE_S, costs=costs, trainers=trainers)
    assert world.failures == []
    return [entry for entry in entries(world, actor="syncer") if entry["at_s"] >= WARM_S]


def of_kind(lines: Entries, kind: str) -> Entries:
    return [line for line in lines if line["kind"] == kind]


def contributions(lines: Entries) -> float:
    return fmean(len(str(line["participants"]).split(",")) for line in of_kind(lines, "merged"))


def test_work_that_is_too_much_for_one_is_not_for_several() -> None:
    lines = played(Costs(work_s=(0.02, 0.02)))
    assert len(of_kind(lines, "merged")) > 0.9 * LIVE_S / STEP_S
    assert contributions(lines) > 0.9 * LEARNERS


def test_a_slow_journal_delays_neither_inspections_nor_merges() -> None:
    slow = Costs(inspect_s=(0.01, 0.01), merge_s=(0.05, 0.05), write_s=(0.045, 0.045))
    lines = played(slow)
    assert len(of_kind(lines, "merged")) > 0.9 * LIVE_S / STEP_S


def test_rounds_that_lack_what_waits_to_be_measured_say_so() -> None:
    lines = played(Costs(inspect_s=(0.03, 0.03)))
    assert contributions(lines) < 0.9 * LEARNERS
    late = [name for line in of_kind(lines, "closed") for name in str(line["uninspected"]).split()]
    assert any("learner-" in name for name in late)
