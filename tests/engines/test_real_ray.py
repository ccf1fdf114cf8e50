"""Islands on a real cluster of Ray: several nodes on this host, each with a raylet of its own."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from islands.engines.engine import EngineAway, Island, Job, JobState, RunMark, end_in_words
from islands.engines.needs import Needs
from islands.engines.ray import Ray
from tests.engines.ray_cluster import MISSING, RayCluster, begun, cluster_of, gone

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

OF = RunMark("first", "ab12cd34")
SECRET = "seldom-told"  # noqa: S105  (it opens nothing)
LIMIT_S = 60.0
LOOK_S = 0.1


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Two nodes, and a head that runs no island."""
    with cluster_of(2, cpus=4) as started:
        yield started


def island(name: str, command: str, attempt: int = 1, **needs: object) -> Island:
    return Island(
        *(name, OF, Needs("ray", **needs), command),  # type: ignore[arg-type]
        {"ISLANDS_TOKEN": SECRET},
        attempt=attempt,
    )


async def place(engine: Ray, island: Island) -> str:
    return await asyncio.to_thread(engine.place, island)


async def end(engine: Ray, job: str, *, at_once: bool = False) -> None:
    await asyncio.to_thread(engine.end, job, at_once=at_once)


async def until(engine: Ray, holds: Callable[[dict[str, Job]], bool]) -> dict[str, Job]:
    """List jobs until something holds of them; return the last one of each island."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            jobs = await asyncio.to_thread(engine.list)
            newest = {job.name: job for job in sorted(jobs, key=lambda job: job.job)}
            if holds(newest):
                return newest
            await asyncio.sleep(LOOK_S)


def are(state: JobState, *names: str) -> Callable[[dict[str, Job]], bool]:
    return lambda jobs: all(jobs[name].state is state for name in names)


@pytest.mark.long("tests/engines/test_ray.py::test_a_job_is_as_its_status_and_its_file_say")
async def test_islands_are_jobs_that_another_hub_finds(cluster: RayCluster, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    settings = {"address": cluster.address, "folder": str(folder)}
    first = Ray(OF, settings)
    api = f"{cluster.address}/api/jobs/"
    async with aiohttp.request("POST", api, json={"entrypoint": "true"}) as others:
        assert others.ok
    await place(first, island("failed-0", "bash -c 'echo no disk; exit 3'"))
    await place(first, island("done-0", "true"))
    told = f'echo "$ISLANDS_TOKEN" > {tmp_path}/told'
    kept = await place(first, island("kept-0", "sleep 1001", setup=(told,)))
    wide = await place(first, island("wide-0", f"touch {tmp_path}/begun", cpus=64))
    trap = (f"trap 'touch {tmp_path}/left; exit 0' TERM", "while true; do sleep 0.1; done")
    asked = await place(first, island("asked-0", "true", setup=trap))
    killed = await place(first, island("killed-0", "sleep 1002"))
    await until(first, are(JobState.RUNNING, "kept-0", "asked-0", "killed-0"))
    assert await begun("1002")

    second = Ray(OF, settings)  # of another hub, after the first was killed
    assert await place(second, island("kept-0", "sleep 1001", setup=(told,))) == kept
    jobs = await until(second, are(JobState.ENDED, "failed-0", "done-0"))
    assert await begun("1001"), "an attempt that is made again is the same job"
    assert end_in_words(jobs["failed-0"]) == "exit code 3: no disk"
    assert end_in_words(jobs["done-0"]) == ""
    assert (len(jobs), jobs["wide-0"].state) == (6, JobState.WAITING)
    assert jobs["wide-0"].why.startswith("Job has not started yet. It may be waiting for resources")
    assert (tmp_path / "told").read_text().split() == [SECRET]
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    async with aiohttp.request("GET", api) as everything:
        assert SECRET not in await everything.text()

    await end(second, asked)
    await end(second, wide)
    cluster.kill(killed)
    jobs = await until(second, are(JobState.ENDED, "asked-0", "wide-0", "killed-0"))
    assert [jobs[name].cancelled for name in ("asked-0", "wide-0")] == [True, True]
    assert (tmp_path / "left").exists(), "it had time to leave"
    assert "supervisor" in end_in_words(jobs["killed-0"])
    await gone("1002")

    again = await place(second, island("killed-0", "sleep 1003", attempt=2))
    assert again == killed.removesuffix("1") + "2"
    await until(second, are(JobState.RUNNING, "killed-0"))
    os.kill(parent_of(await begun("1003")), signal.SIGKILL)  # the supervising actor's process
    jobs = await until(second, are(JobState.ENDED, "killed-0"))
    assert "its worker process has died" in end_in_words(jobs["killed-0"])
    await end(second, kept, at_once=True)
    await until(second, are(JobState.ENDED, "kept-0"))
    await end(second, kept)  # it has ended already
    await gone("1001")
    await gone("1003")
    assert cluster.actors() == [wide], "Ray cannot stop what waits, and it finds no command"
    assert list(folder.iterdir()) == []
    assert not (tmp_path / "begun").exists()


def parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


async def test_a_cluster_that_is_not_there_is_away() -> None:
    engine = Ray(OF, {"address": "http://127.0.0.1:1"})
    with pytest.raises(EngineAway, match=r"Ray at http://127\.0\.0\.1:1 does not answer: "):
        await asyncio.to_thread(engine.list)
