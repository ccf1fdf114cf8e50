"""Islands on a real cluster of Ray: several nodes on this host, each with a raylet of its own."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from islands.engines.engine import EngineAway, Island, Job, JobState, RunMark, told_of
from islands.engines.needs import Needs
from islands.engines.ray import Ray
from tests.engines.ray_cluster import MISSING, RayCluster, cluster_of, gone, processes_with

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

OF = RunMark("first", "ab12cd34")
LIMIT_S = 30.0
LOOK_S = 0.1


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Four nodes, and a head that runs no island."""
    with cluster_of(4) as started:
        yield started


def island(name: str, command: str, **needs: object) -> Island:
    environment = {"ISLANDS_TOKEN": "secret"}
    return Island(name, OF, Needs("ray", **needs), command, environment)  # type: ignore[arg-type]


async def until(engine: Ray, holds: Callable[[dict[str, Job]], bool]) -> dict[str, Job]:
    """List jobs until something holds of them; return them by island."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            jobs = {job.name: job for job in engine.list()}
            if holds(jobs):
                return jobs
            await asyncio.sleep(LOOK_S)


def running(*names: str) -> Callable[[dict[str, Job]], bool]:
    return lambda jobs: all(jobs[name].state is JobState.RUNNING for name in names)


def ended(*names: str) -> Callable[[dict[str, Job]], bool]:
    return lambda jobs: all(jobs[name].state is JobState.ENDED for name in names)


@pytest.mark.long("tests/engines/test_ray.py::test_the_state_of_a_job_follows_from_its_hosts")
async def test_islands_are_actors_that_another_hub_finds(
    cluster: RayCluster, tmp_path: Path
) -> None:
    first = Ray(OF, {"address": cluster.address})
    told = f'echo "$ISLANDS_TOKEN $ISLANDS_RANK $ISLANDS_ADDRESS" > {tmp_path}/$ISLANDS_RANK'
    first.place(island("failed-0", "bash -c 'echo no disk; exit 3'"))
    first.place(island("done-0", "true"))
    first.place(island("two-0", "sleep 1001", hosts=2, setup=(told,)))
    first.place(island("wide-0", "true", cpus=64))
    trap = ("trap 'echo leaving; exit 143' TERM", "while true; do sleep 0.1; done")
    asked = first.place(island("asked-0", "true", setup=trap))
    killed = first.place(island("killed-0", "sleep 1002"))
    await until(first, running("two-0", "asked-0", "killed-0"))
    second = Ray(OF, {"address": cluster.address})  # of another hub, after the first was killed
    drivers = processes_with("islands.engines.ray_driver")
    [driver] = [pid for pid in drivers if parent_of(pid) == os.getpid()]
    os.kill(driver, signal.SIGKILL)
    with pytest.raises(EngineAway, match="its driver has ended"):
        second.list()
    jobs = await until(second, ended("failed-0", "done-0"))
    assert told_of(jobs["failed-0"]) == "exit code 3: no disk"
    assert told_of(jobs["done-0"]) == ""
    assert jobs["wide-0"].why == (
        "pending: it needs a node with CPU 64, ray.io/market-type=!spot; 0 of 5 are so"
    )
    assert len(set(jobs["two-0"].where.split(", "))) == 2
    words = [(tmp_path / str(rank)).read_text().split() for rank in range(2)]
    assert [each[:2] for each in words] == [["secret", "0"], ["secret", "1"]]
    assert words[0][2] == words[1][2]
    assert not [key for key in cluster.actors() if "secret" in key]

    second.end(asked, at_once=False)
    second.end(jobs["wide-0"].job, at_once=False)
    cluster.kill(f"{killed}/0")
    jobs = await until(second, ended("asked-0", "wide-0", "killed-0"))
    assert (jobs["asked-0"].code, jobs["asked-0"].why) == (143, "leaving")
    assert "killed by `ray.kill`" in told_of(jobs["killed-0"])
    await gone("1002")

    again = second.place(island("killed-0", "sleep 1003"))
    assert again == killed.replace("/1", "/2")
    await until(second, running("killed-0"))
    [worker] = [pid for pid in processes_with("1003") if pid]
    os.kill(parent_of(worker), signal.SIGKILL)  # the actor's process
    jobs = await until(second, ended("killed-0"))
    assert "its worker process has died" in told_of(jobs["killed-0"])
    second.end(jobs["two-0"].job, at_once=True)
    await until(second, ended("two-0"))
    await gone("1001")
    await gone("1003")
    second.close()
    first.close()
    assert (cluster.actors(), cluster.groups(), cluster.keys()) == ([], [], [])


def parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


@pytest.mark.long("tests/engines/test_ray.py::test_an_error_of_ray_is_mended_or_waited_for")
async def test_a_cluster_that_is_not_there_is_away() -> None:
    engine = Ray(OF, {"address": "127.0.0.1:1"})
    with pytest.raises(EngineAway, match=r"Ray at 127\.0\.0\.1:1 does not answer: .*refused"):
        engine.list()
    engine.close()
    assert sys.modules.get("ray") is None, "the hub's own process has no Ray"
