"""The story *routes*: unlike warehouses, values of their own, and a run in which one is cut off."""

import asyncio
import contextlib
import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import jax
import numpy as np
import pytest

from examples.stories import routes
from examples.stories.routes import ALL, HELD_BACK, KEPT_EVERY, WAREHOUSES, Routes, trips_of
from islands import load
from islands.cli.parsing import parse
from islands.model.jax_trainer import JaxTrainer
from islands.settings.host import RunOptions
from islands.tasks.data.shards import ShardKey
from tests.benchmarks.routes import (
    AWAY,
    NAMES,
    RATE,
    ROWS,
    Roads,
    by_itself,
    driving,
    looks,
    simulate,
    told,
    truth,
)
from tests.integration.programs import open_room

pytestmark = pytest.mark.usefixtures("quickly_compiled")

SHARD = ShardKey(0, 3)
PORT = 17170  # the first of ten
FEW_TRIPS = 6_000  # of each warehouse
STEPS = 400  # of each on the virtual clock


def test_warehouses_are_unlike_and_their_trips_plausible() -> None:
    """No two have customers of the same region at the same hours."""
    drawn = [trips_of(number, 2000, HELD_BACK) for number in range(WAREHOUSES)]
    means = np.stack([known.mean(axis=0) for known, _ in drawn])
    for number in range(WAREHOUSES):
        apart = np.linalg.norm(means[number, 2:4] - means[number - 1, 2:4])
        assert 20 * apart > 10, "km between the middles of two regions"
    assert np.ptp(means[:, 7]) > 1, "hours"
    for known, minutes in drawn:
        assert known.shape == (2000, 14)
        assert 3 < minutes.min() < minutes.max() < 600


def test_a_place_in_the_data_has_the_same_trips_of_the_warehouse_alone() -> None:
    ours, theirs, every = (
        [known for (known, _), _ in islice(Routes(warehouse=each).batches(SHARD, 0), 3)]
        for each in (2, 3, ALL)
    )
    (again, _), after = next(Routes(warehouse=2).batches(SHARD, 2))
    assert after == 3
    np.testing.assert_array_equal(again, ours[2])
    home = ours[0][0, :2]
    assert (np.concatenate(ours)[:, :2] == home).all()
    assert not (np.concatenate(theirs)[:, :2] == home).all(axis=1).any()
    assert (every[0][:, :2] == home).all(axis=1).sum() == Routes().rows // WAREHOUSES


def test_its_file_is_understood() -> None:
    file = parse(RunOptions, [str(routes.HERE / "routes.yaml")], program="", description="")[0].file
    assert file.run.gossip.on
    assert file.run.budget_tokens == WAREHOUSES * Routes().rows * (file.run.total_steps or 0)


def test_a_warehouse_predicts_by_values_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = JaxTrainer(Routes(warehouse=2, folder=str(tmp_path)), 1)
    trainer.setup()
    for batch, _ in islice(trainer.batches(SHARD, 0), 2 * KEPT_EVERY + 1):
        trainer.step(batch, 3e-3)
    jax.effects_barrier()  # type: ignore[no-untyped-call]  # untyped in JAX
    first, _, last = looks(tmp_path, 2)
    assert (first[0], last[0]) == (0, 2 * KEPT_EVERY * Routes().rows)
    assert last[1] < first[1] / 2
    kept = dict(np.load(tmp_path / "warehouse-2.npz"))
    assert (routes.errors(kept)[2], routes.error(kept)) == tuple(last[1:])
    routes.predict(tmp_path, 2)
    assert capsys.readouterr().out.count("warehouse-2 predicted") == 3


@pytest.mark.integration
async def test_the_relay_passes_nothing_of_who_is_away() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async with contextlib.AsyncExitStack() as stack:
        there = await stack.enter_async_context(await asyncio.start_server(echo, "127.0.0.1", 0))
        roads = Roads(dict.fromkeys(("hub", "warehouse-5"), there.sockets[0].getsockname()[1]))
        relay = await stack.enter_async_context(
            await asyncio.start_server(roads.join, "127.0.0.1", 0)
        )

        stack.push_async_callback(roads.end)

        async def dial(who: str, whom: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            port = relay.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            head = f"GET /{whom} HTTP/1.1\r\nIslands-Name: {who}\r\n\r\n".encode()
            writer.write(head)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                assert await reader.readexactly(len(head)) == head
            return reader, writer

        links = [await dial("warehouse-5", "supervisor"), await dial("warehouse-1", "warehouse-5")]
        other = await dial("warehouse-1", "supervisor")
        roads.away.add("warehouse-5")
        for reader, writer in [*links, await dial("warehouse-5", "warehouse-1")]:
            writer.write(b"steps")
            assert await reader.read(5) == b""
        other[1].write(b"steps")
        assert await other[0].readexactly(5) == b"steps"


@pytest.mark.long("test_a_warehouse_predicts_by_values_of_its_own")
@pytest.mark.simulation
def test_all_learn_what_one_place_does_and_one_would_not_by_itself(tmp_path: Path) -> None:
    """A tenth of the story's trips, on the virtual clock; warehouse 5 is cut off as ever."""
    words = ["--run.total_steps", str(STEPS), "--run.budget_tokens", str(WAREHOUSES * 32 * STEPS)]
    words += ["--run.timing.patience", "0.2"]
    settings, task = told([*words, "--task_settings.arrive_s", "0"])
    played = simulate(tmp_path / "run", words, returns=True)
    together = replace(settings, learning_rate=RATE)
    one_place = by_itself(replace(task, rows=ROWS), together, played.trips)
    alone = by_itself(replace(task, warehouse=AWAY), settings, played.trips // WAREHOUSES)
    share = played.trips / (WAREHOUSES * 32 * STEPS)
    assert 1 <= share < 1.1, "what nobody heard of is beside the budget"
    assert truth() < one_place < played.mean < 1.3 * one_place
    assert alone > 2 * played.mean
    left, returned, last = map(played.look, (played.left, played.returned, played.trips))
    assert returned[1] < 1.1 * left[1], "it learns on by its own trips"
    assert last[2] < 0.7 * returned[2], "it learns again what the others know"


@pytest.mark.long("test_a_warehouse_predicts_by_values_of_its_own")
@pytest.mark.integration
async def test_one_that_is_cut_off_learns_on_and_all_learn_of_all_regions(tmp_path: Path) -> None:
    """Whoever is early or late, it is cut off between two looks of its own.

    It may not have joined again as the run ends: then it would dial the hub without an end.
    """
    folder = tmp_path / "run"

    def looked(number: int, trips: float, times: int = 1) -> bool:
        return len([line for line in looks(folder, number) if line[0] > trips]) >= times

    endless = ("--run.budget_tokens", "100_000_000")
    async with open_room(tmp_path) as room, driving(folder, PORT, endless) as (roads, processes):
        others = [process for name, process in processes.items() if name != NAMES[AWAY]]
        await room.wait(lambda: looked(AWAY, FEW_TRIPS))
        roads.away.add(NAMES[AWAY])
        left = looks(folder, AWAY)[-1][0]
        await room.wait(lambda: looked(AWAY, left, 3))
        alone = looks(folder, AWAY)
        roads.away.clear()
        await room.wait(lambda: all(looked(each, 2 * FEW_TRIPS) for each in range(WAREHOUSES)))
        told = await room.run("islands.cli", "stop", "--folder", folder)
        assert told.process.returncode == 0, told
        await room.wait(lambda: all(process.poll() is not None for process in others))
    untrained = routes.error(Routes().init(jax.random.key(0)).params)
    assert all(line[1] < untrained / 2 for line in alone if line[0] > left)
    assert routes.error(load(folder)) < untrained / 2
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["ledger"]["imbalance"] == 0
    assert summary["learners"].keys() == set(NAMES)
