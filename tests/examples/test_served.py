"""A shop's recommendations: what its events are, and that answers come from the newest values."""

import asyncio
import hashlib

import jax
import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer

from examples.stories.served import REGIONS, SHOWN, Clicks, Server
from islands.layout.leaves import Layout
from islands.loops.follow import FollowedRun, Held
from islands.model.evaluation import Judged
from islands.model.jax_trainer import JaxTrainer
from islands.protocol.identities import Version
from islands.tasks.data.shards import ShardKey
from tests.benchmarks import served
from tests.loops.test_follow import Run

SMALL = Clicks(visitors=400, items=400, width=4)


def test_events_are_drawn_from_their_place_and_are_those_of_a_region() -> None:
    for shard in range(REGIONS):
        events, after = next(SMALL.batches(ShardKey(2, shard), 5))
        again, _ = next(SMALL.batches(ShardKey(2, shard), 5))
        assert after == 6
        assert all(map(np.array_equal, events, again))
        assert set(events.visitors % REGIONS) == {shard}
        assert 0.05 < events.clicked.mean() < 0.5
        counts = np.sort(np.bincount(events.items, minlength=SMALL.items))[::-1]
        assert counts[:40].sum() > counts[40:].sum(), "a tenth of the items is shown most"


@pytest.mark.usefixtures("quickly_compiled")
def test_the_task_trains() -> None:
    trainer = JaxTrainer(SMALL, 1)
    trainer.setup()
    before = SMALL.evaluate(SMALL.init(jax.random.key(0)).params, None)["val_loss"]
    for batch, _ in trainer.batches(ShardKey(0, 0), 0):
        trainer.step(batch, 0.02)
    assert trainer.evaluate([trainer.value(0)])["val_loss"] < before - 0.01


def held(layout: Layout, number: int) -> Held:
    """Values by which every visitor likes the items from `number` on."""
    paths = {leaf.path: np.zeros(leaf.shape, np.float32) for leaf in layout.leaves}
    paths["liked"][number : number + SHOWN] = np.arange(SHOWN, 0, -1)
    return Held(layout, layout.disassemble(paths), Judged(0.0, 8, 0.0, (Version(1, number),)))


async def test_answers_come_from_the_newest_values() -> None:
    layout, run = JaxTrainer(SMALL, 1).layout, Run()
    server = Server(FollowedRun(run))
    run.publish(held(layout, 3))
    async with asyncio.timeout(60), TestClient(TestServer(server.app())) as client:
        answer = await (await client.get("/visitors/17")).json()
        assert answer == {"items": list(range(3, 3 + SHOWN)), "versions": ["1.3"]}
        await asyncio.to_thread(run.publish, held(layout, 4))
        while answer["versions"] == ["1.3"]:
            answer = await (await client.get("/visitors/17")).json()
        assert answer == {"items": list(range(4, 4 + SHOWN)), "versions": ["1.4"]}
        told = await (await client.get("/model")).json()
        values = server.model.values
        digest = hashlib.sha256(b"".join(values[path].tobytes() for path in sorted(values)))
        assert (told["versions"], told["digest"]) == (["1.4"], digest.hexdigest())
        assert (await client.get("/visitors/400")).status == 404


@pytest.mark.long("test_answers_come_from_the_newest_values")
@pytest.mark.integration
async def test_a_server_answers_while_the_run_trains() -> None:
    """Its last values are those of the run, and most answers are at most a merge behind."""
    figures = await served.play(0, 10.0, None)
    assert figures.equal
    assert figures.received > 0
    assert figures.lag_at_most_one > 0.5
