"""Processes that need longer than the run's timeouts before they step: they are let, in the end."""

from pathlib import Path

import pytest

from islands.protocol.settings.run import RunSettings, Timing
from tests.integration.fleet import WatchedHub, make_fleet, running
from tests.integration.programs import LIMIT_S, incarnations, logged

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

BUDGET_TOKENS = 1600


def fleet(folder: Path, timing: Timing, **task: object) -> WatchedHub:
    """A hub in this process; its syncer and one learner, without JAX, in others."""
    settings = RunSettings(
        run="slow", interval_steps=8, fragments=4, budget_tokens=BUDGET_TOKENS, timing=timing
    )
    return make_fleet(folder, settings, {"step_s": 0.01, "megabytes": 0.25, **task}, learners=1)


async def test_a_learner_with_a_long_first_step_is_not_killed_in_it(tmp_path: Path) -> None:
    timing = Timing(heartbeat_s=0.2, stalled_s=2.0, compile_s=40.0)
    hub = fleet(tmp_path / "run", timing, first_step_s=6.0)
    async with running(hub) as run:
        await hub.wait_merge_of(("learner-0",), LIMIT_S)
        summary = await run
    assert summary is not None
    assert summary["tokens"] == BUDGET_TOKENS
    assert incarnations(summary) == {"learner-0": 1}
    assert logged(tmp_path / "run", "killed") == []
    assert logged(tmp_path / "run", "status", status="stalled") == []
