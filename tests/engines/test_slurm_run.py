"""A run whose islands Slurm places: what it loses comes back, and nothing is left behind.

A real hub, and a real Slurm of three nodes on this host (`slurm_cluster.py`). Islands sleep.
"""

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from islands.lab.faults.bare_loop import BareLoop
from islands.lab.faults.gaps import Span
from islands.lab.faults.proxy import free_port
from tests.engines.placed_run import Run
from tests.engines.slurm_cluster import SlurmCluster, missing, open_cluster
from tests.environment import gap_limit_s
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
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

CONTROL_S = 12.0
AWAY_S = 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """A job, as squeue shows it."""

    job: str
    state: str
    nodes: str
    restarts: int


@dataclass(slots=True)
class SlurmRun(Run):
    """A run whose islands are jobs of one cluster."""

    cluster: SlurmCluster = field(kw_only=True)

    def jobs(self) -> dict[str, Row]:
        """The newest job of each island; ended ones as well."""
        columns = "Comment:200,JobID:20,State:20,RestartCnt:8,NodeList:60"
        told = self.cluster.ask("squeue", "--noheader", "--states=all", f"--Format={columns}")
        found: dict[str, Row] = {}
        for line in sorted(told.splitlines(), key=lambda line: int(line[200:220])):
            name = line[:200].strip().rpartition("/")[2]
            nodes = line[248:].strip()
            found[name] = Row(
                line[200:220].strip(), line[220:240].strip(), nodes, int(line[240:248])
            )
        return found

    async def ended(self, name: str, state: str) -> None:
        """Wait until the job of an island has ended so."""
        await self.room.wait(lambda: self.jobs()[name].state == state)


def write_islands(folder: Path) -> None:
    """Write the file of a run: two islands of a host, one of two, and edge, to be added.

    Each node has room for two hosts, and the first three islands keep off n3.
    """

    def entry(settings: dict[str, str], **more: object) -> dict[str, object]:
        path = f"export PATH={Path(sys.executable).parent}:$PATH"
        told = {"engine": "slurm", "cpus": 2, "learner": {"threads": 1}, "setup": [path]}
        return {**told, "settings": {"chdir": str(folder), **settings}, **more}

    write_config(
        folder / "run.yaml",
        run={"interval_steps": 8},
        task_settings={"step_s": 0.05, "megabytes": 0.25},
        listen=f"127.0.0.1:{free_port()}",
        islands={
            "site": entry({"exclude": "n3"}, count=2),
            "pair": entry({"exclude": "n3"}, hosts=2),
            "edge": entry({}, count=0),
        },
    )


async def begin(run: SlurmRun) -> float:
    """Have four islands on three nodes; return the time from which all of them merge."""
    run.start_hub()
    await run.room.wait(lambda: hub_address(run.folder))
    await run.merged("site-0", "site-1", "pair-0")
    await control(run.room, "add", "edge")
    begun_s = await run.merged("site-0", "site-1", "pair-0", "edge-0")
    nodes = {name: job.nodes for name, job in run.jobs().items()}
    assert (nodes["pair-0"], nodes["edge-0"]) == ("n[1-2]", "n3")
    await asyncio.sleep(CONTROL_S)
    return begun_s


async def cancel(run: SlurmRun, name: str) -> None:
    """Cancel an island's job, as somebody who needs its nodes would: it leaves in order."""
    run.cluster.ask("scancel", run.jobs()[name].job)
    await run.ended(name, "CANCELLED")
    await run.room.wait(lambda: logged(run.folder, "left", name=name, reason="SIGTERM"))


async def lose_a_node(run: SlurmRun) -> Span:
    """Kill n3; return the time until its island merges again, on another node in the same job."""
    first = run.jobs()["edge-0"]
    lost_s = asyncio.get_running_loop().time()
    await run.cluster.kill_node("n3")
    await run.room.wait(lambda: run.jobs()["edge-0"].restarts == 1)
    back_s = await run.merged("site-0", "pair-0", "edge-0")
    again = run.jobs()["edge-0"]
    assert again.job == first.job
    assert again.nodes in ("n1", "n2")
    run.cluster.start_node("n3")
    return lost_s, back_s


async def lose_the_hub(run: SlurmRun) -> None:
    """Kill the hub and start it again: it finds its islands, and places none of them twice."""
    before = run.jobs()
    run.hubs[-1].process.kill()
    await run.room.ended(run.hubs[-1])
    await asyncio.sleep(AWAY_S)
    run.start_hub()
    await run.merged("site-0", "pair-0", "edge-0")
    assert run.jobs() == before


@pytest.mark.long("tests/engines/test_slurm.py::test_states_are_those_of_the_port")
async def test_what_slurm_loses_comes_back_and_nothing_is_left_behind(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room, open_cluster(room) as cluster:
        write_islands(tmp_path)
        run, others = SlurmRun(room, cluster.environment, cluster=cluster), ("site-0", "pair-0")
        with BareLoop(tmp_path) as bare:
            quiet = (await begin(run), asyncio.get_running_loop().time())
            await cancel(run, "site-1")
            lost = await lose_a_node(run)
            stalls = bare.stalls()
        gaps = [run.gap(others, span, stalls) for span in (quiet, lost)]
        told = f"control {gaps[0]}, node lost {gaps[1]}, back {lost[1] - lost[0]:.1f} s later"
        (tmp_path / "measured.txt").write_text(told + "\n")
        assert gaps[1].left_s - gaps[0].left_s < gap_limit_s(), told
        await lose_the_hub(run)
        await cluster.wait_idle()
        await control(room, "add", "edge")
        await run.merged("site-0", "pair-0", "edge-0", "edge-1")
        await control(room, "drain", "edge-1")
        await run.ended("edge-1", "COMPLETED")
        await control(room, "stop")
        assert await room.ended(run.hubs[-1]) == 0, str(run.hubs[-1])
        assert cluster.jobs() == ""
        assert imbalance(summary_of(run.folder) or {}) == 0
        counts = {"site-0": 1, "site-1": 1, "pair-0": 1, "edge-0": 2, "edge-1": 1}
        assert {name: len(logged(run.folder, "admitted", name=name)) for name in counts} == counts
