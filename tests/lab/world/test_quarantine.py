"""A learner that is quarantined among the real actors: others spend what it leaves."""

import asyncio
import json

import pytest

from islands.files.tape_writing import MemoryTape
from islands.lab.checker import Limits, judge
from islands.lab.world.world import BATCHES_PER_SHARD, LearnerHost, World
from islands.protocol.settings.run import RunSettings, Timing
from messaging.simulation.virtual_time import run_virtual

pytestmark = pytest.mark.simulation

LIMIT_S = 60.0
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
    world = World(SETTINGS, hosts, seed=1, tape=(tape := MemoryTape()))

    async def live() -> None:
        world.start_all()
        await asyncio.sleep(LIMIT_S)
        await world.kill_all()

    run_virtual(live(), limit_s=2 * LIMIT_S)
    assert (world.failures, world.finished) == ([], "tokens")
    entries = [json.loads(line) for line in tape.lines]
    assert [e["name"] for e in entries if e["kind"] == "quarantined"] == ["eve"]
    (returned,) = [e for e in entries if e["kind"] == "quota_returned"]
    final = next(e for e in entries if e["kind"] == "finished")
    processed = {text.partition("/")[0]: tokens for text, tokens in final["processed"].items()}
    assert processed["eve"] == returned["used"]
    assert sum(processed.values()) == BUDGET
    assert not judge(tape.lines, _limits(world))


def _limits(world: World) -> Limits:
    return Limits(
        fragment_elements=tuple(fragment.size for fragment in world.layout.fragments),
        open_rounds_max=SETTINGS.open_rounds_max(2),
        staleness_max=SETTINGS.staleness_max,
        quorum=SETTINGS.quorum_least,
        budget_tokens=BUDGET,
        batch_tokens={name: host.batch_tokens for name, host in world.hosts.items()},
        records_per_shard=BATCHES_PER_SHARD,
        mailbox_most=256,
        moments_wait_s=SETTINGS.timing.scaled(SETTINGS.timing.resend_s),
    )
