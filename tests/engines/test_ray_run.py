"""A run whose islands Ray places: what it loses is placed again, and nothing is left behind.

A real hub, and a real cluster of Ray with four nodes on this host. Islands sleep.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from islands.lab.faults.proxy import free_port
from tests.engines.placed_run import Run, now_s
from tests.engines.ray_cluster import MISSING, RayCluster, cluster_of, gone
from tests.integration.programs import (
    control,
    hub_address,
    imbalance,
    logged,
    open_room,
    summary_of,
    write_config,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(420),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

PLACED_S = 10.0
"""In which an island is placed again after the loss of its node."""

NAMES = ("site-0", "site-1", "site-2", "edge-0")


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    """Four nodes, and a head that runs no island."""
    with cluster_of(4) as started:
        yield started


def write_islands(folder: Path, cluster: RayCluster) -> None:
    """Write the file of a run: three islands, and edge, to be added."""

    def entry(**more: object) -> dict[str, object]:
        return {
            "engine": "ray",
            "learner": {"threads": 1, "folder": str(folder / "learners")},
            "setup": [f"export PATH={Path(sys.executable).parent}:$PATH"],
            "settings": {"address": cluster.address, "folder": str(folder / "jobs")},
            **more,
        }

    write_config(
        folder / "run.yaml",
        run={"interval_steps": 8},
        task_settings={"step_s": 0.05, "megabytes": 0.25},
        listen=f"127.0.0.1:{free_port()}",
        islands={
            "site": entry(count=3),
            "edge": entry(count=0),
        },
    )


@pytest.mark.long("tests/engines/test_ray.py::test_a_job_is_as_its_status_and_its_file_say")
async def test_what_ray_loses_is_placed_again_and_nothing_is_left_behind(
    cluster: RayCluster, tmp_path: Path
) -> None:
    async with open_room(tmp_path) as room:
        write_islands(tmp_path, cluster)
        run = Run(room)
        hub = run.start_hub()
        await room.wait(lambda: hub_address(run.folder))
        await run.merged("site-0", "site-1", "site-2")
        await control(room, "add", "edge")
        await run.merged(*NAMES)
        cluster.kill(run.placed()["site-1"].job)
        await room.wait(lambda: len(logged(run.folder, "admitted", name="site-1")) == 2)
        await run.merged(*NAMES)
        lost = await lose_node_of("edge-0", run, cluster)

        before = {name: each.job for name, each in run.placed().items()}
        hub.process.kill()
        await room.ended(hub)
        hub = run.start_hub()
        await run.merged(*NAMES)
        assert {name: each.job for name, each in run.placed().items()} == before
        assert len(cluster.actors()) == 4
        await control(room, "add", "site")
        await run.merged(*NAMES, "site-3")
        await control(room, "drain", "site-3")
        await room.wait(lambda: run.placed()["site-3"].ended == "")
        assert "ray" in (await control(room, "status")).out
        await control(room, "stop")
        assert await room.ended(hub) == 0, str(hub)
        summary = summary_of(run.folder) or {}
    assert (cluster.actors(), list((tmp_path / "jobs").iterdir())) == ([], [])
    await gone(str(tmp_path / "learners"))
    assert imbalance(summary) == 0
    admitted = {name: 1 + (name in lost) + (name == "site-1") for name in NAMES}
    for name, times in admitted.items():
        assert len(logged(run.folder, "admitted", name=name)) == times


async def lose_node_of(name: str, run: Run, cluster: RayCluster) -> tuple[str, ...]:
    """Lose the node of an island; return all that were on it, once they merge again."""
    first = run.placed()
    node = cluster.node_of(first[name].where)
    names = tuple(each for each in NAMES if cluster.node_of(first[each].where) == node)
    assert names != NAMES, first
    admitted = len(logged(run.folder, "admitted", name=name))
    at_s = now_s()
    cluster.lose(node)

    def placed() -> bool:
        now = run.placed()
        return all(now[each].job not in ("", first[each].job) for each in names)

    await run.room.wait(placed, PLACED_S - (now_s() - at_s))
    await run.room.wait(lambda: len(logged(run.folder, "admitted", name=name)) > admitted)
    await run.merged(*NAMES)
    return names
