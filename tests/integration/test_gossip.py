"""Learners in processes of their own exchange values over sockets of their own; one is killed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from islands.cli.control import target_of, tell
from islands.protocol.messages.control import Verb
from islands.protocol.settings.presets import PRESETS, Preset
from islands.settings.commands import OperatorOptions
from tests.integration.fleet import WatchedHub, make_fleet, running
from tests.integration.programs import (
    LIMIT_S,
    entries,
    imbalance,
    incarnations,
    processed,
    summary_of,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NAMES = ("learner-0", "learner-1", "learner-2")
SLEEPING: dict[str, object] = {"step_s": 0.02, "megabytes": 0.25}


def met(folder: Path, name: str, other: str = "") -> int:
    """In how many rounds a learner has met another one, or anybody."""
    told = entries(folder / "processes" / name / "tape.jsonl", "gossip")
    return sum(not other or other in str(entry["partners"]) for entry in told)


@pytest.mark.long(
    "tests/lab/world/test_gossip.py::test_a_restarted_learner_begins_with_the_values_of_one_that_trains"
)
async def test_a_killed_learner_holds_up_nobody_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = replace(PRESETS[Preset.GOSSIP], run="fleet", interval_steps=10, budget_tokens=None)
    hub: WatchedHub = make_fleet(folder, settings, SLEEPING, learners=3)

    async def meet(name: str, other: str, times: int) -> None:
        known = met(folder, name, other)
        await hub.wait_until(lambda: met(folder, name, other) >= known + times, LIMIT_S)

    async with running(hub) as run:
        await meet("learner-0", "learner-1", 2)
        before = hub.launcher.pid("learner-1")
        hub.launcher.kill("learner-1")
        await meet("learner-0", "learner-2", 2)
        await hub.wait_until(lambda: hub.launcher.pid("learner-1") not in (None, before), LIMIT_S)
        await meet("learner-1", "learner-0", 2)
        options = OperatorOptions(folder=folder)
        assert (await tell(target_of(options), Verb.STOP, "", 1)).done
        async with asyncio.timeout(LIMIT_S):
            summary = await run
    assert summary is not None
    assert entries(folder / "processes" / "learner-1" / "tape.jsonl", "took_over")
    assert incarnations(summary) == {"learner-0": 1, "learner-1": 2, "learner-2": 1}
    assert imbalance(summary) == 0
    assert len(set(processed(summary))) == 1
    assert (summary_of(folder) or {}).get("reason") == summary["reason"]
    assert not any(entries(folder / "processes" / n / "tape.jsonl", "share_refused") for n in NAMES)
