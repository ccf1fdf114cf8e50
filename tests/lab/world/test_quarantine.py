"""A learner that is quarantined among the real actors: others spend what it leaves."""

import pytest

from islands.lab.world.world import LearnerHost
from islands.protocol.identities import SYNCER
from islands.protocol.settings.run import RunSettings, Timing
from tests.lab.world.worlds import entries, lived, promises_kept

pytestmark = pytest.mark.simulation

BUDGET = 4000

SETTINGS = RunSettings(
    interval_steps=4,
    fragments=2,
    quorum=None,
    budget_tokens=BUDGET,
    warmup_steps=0,
    learning_rate=0.02,
    norm_limit=2.0,
    timing=Timing(patience=0.2),
)


def test_others_spend_the_budget_to_its_end() -> None:
    """One goes far too far among three; most of its quota is left, and is processed by others."""
    hosts = {name: LearnerHost() for name in ("ana", "ben")}
    hosts["eve"] = LearnerHost(momentum=0.99)
    world = lived(SETTINGS, hosts, 60.0)
    assert (world.failures, world.finished) == ([], "tokens")
    assert [entry["name"] for entry in entries(world, "quarantined")] == ["eve"]
    (returned,) = entries(world, "quota_returned")
    (final,) = entries(world, "finished", SYNCER)
    processed = {text.partition("/")[0]: tokens for text, tokens in final["processed"].items()}
    assert processed["eve"] == returned["used"]
    assert sum(processed.values()) == BUDGET
    promises_kept(world)
