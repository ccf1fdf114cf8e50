"""One run over two engines at once, Slurm and Ray, of which one goes away and comes back."""

import sys
from pathlib import Path

import pytest

from islands.engines.placing import Placement
from islands.lab.faults.proxy import free_port
from tests.engines.placed_run import Run
from tests.engines.ray_cluster import MISSING, RayCluster, cluster_of, gone
from tests.engines.slurm_cluster import missing, open_cluster
from tests.integration.programs import (
    control,
    imbalance,
    incarnations,
    logged,
    open_room,
    summary_of,
    write_config,
)

LACKING = MISSING or missing()
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(420),
    pytest.mark.skipif(LACKING is not None, reason=str(LACKING)),
]

LIMIT_S = 150.0


def write_islands(folder: Path, cluster: RayCluster) -> None:
    def entry(engine: str, **settings: str) -> dict[str, object]:
        return {
            "engine": engine,
            "learner": {"threads": 1, "folder": str(folder / "learners")},
            "setup": [f"export PATH={Path(sys.executable).parent}:$PATH"],
            "settings": settings,
        }

    write_config(
        folder / "run.yaml",
        run={"interval_steps": 8},
        task_settings={"step_s": 0.05, "megabytes": 0.25},
        listen=f"127.0.0.1:{free_port()}",
        islands={
            "near": entry("slurm", chdir=str(folder)),
            "far": entry("ray", address=cluster.address, folder=str(folder / "jobs")),
        },
    )


@pytest.mark.long("tests/engines/test_launcher.py::test_a_restarted_hub_finds_what_was_placed")
async def test_a_run_over_two_engines_outlives_the_loss_of_one(tmp_path: Path) -> None:
    with cluster_of(1) as cluster:
        async with open_room(tmp_path) as room, open_cluster(room) as slurm:
            write_islands(tmp_path, cluster)
            run = Run(room, slurm.environment)
            hub = run.start_hub()
            await run.merged("near-0", "far-0")
            cluster.lose_all()
            await room.wait(lambda: "asked again" in hub.err, LIMIT_S)
            assert f"Ray at {cluster.address} does not answer" in hub.err
            assert "ray (far) is asked again" in hub.err
            await room.wait(lambda: logged(run.folder, "evicted", name="far-0"))
            await run.merged("near-0")
            await gone(str(tmp_path / "learners"), but=1)
            status = (await control(room, "status")).out
            assert "does not answer" in status or "far-0" in status
            cluster.start()
            await run.merged("near-0", "far-0", limit_s=LIMIT_S)
            assert "ray (far) answers again" in hub.err
            placed: dict[str, Placement] = run.placed()
            assert (placed["near-0"].starts, placed["far-0"].starts >= 2) == (1, True)
            await control(room, "stop")
            assert await room.ended(hub) == 0, str(hub)
            await room.wait(lambda: slurm.jobs() == "")
        summary = summary_of(run.folder) or {}
        assert cluster.actors() == []
    assert imbalance(summary) == 0
    assert incarnations(summary) == {"near-0": 1, "far-0": 2}
