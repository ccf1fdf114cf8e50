"""A run that cannot be trained, among the real actors."""

import pytest

from islands.lab.world.world import LearnerHost
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.timeouts import DIVERGED
from tests.lab.world.worlds import entries, lived

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("names", [("ana",), ("ana", "ben", "eve")])
def test_a_rate_far_too_high_ends_the_run_with_a_sentence(names: tuple[str, ...]) -> None:
    settings = RunSettings(interval_steps=4, fragments=2, learning_rate=50.0, warmup_steps=0)
    world = lived(settings, {name: LearnerHost() for name in names}, 60.0)
    assert world.failures == []
    assert (world.finished or "").startswith(DIVERGED)
    assert entries(world, "evicted") == []
