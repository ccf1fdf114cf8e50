"""One run for every engine: a real hub, whose islands it places, keeps and ends.

Slurm, Ray and Kubernetes' API are real where this host has them; islands sleep.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from shutil import which
from typing import Protocol

import pytest

from islands.engines.launcher import RECORDS_FILE, records_in
from islands.lab.faults.proxy import free_port
from islands.run.hosting.process_identity import facts
from tests.engines import ray_cluster, slurm_cluster
from tests.engines.kubernetes_api import KubernetesApi, served
from tests.engines.kubernetes_host import Containers, Controllers, kill, stepping
from tests.integration import programs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(420)]

Entry = dict[str, object]


class Cluster(Protocol):
    """An engine's cluster, as the run's test needs it; `hosts` are those of the island `pair`."""

    environment: Mapping[str, str]
    hosts: int

    def entry(self, **more: object) -> Entry: ...

    def jobs(self) -> list[str]: ...

    async def lose(self, island: str) -> None:
        """Take the processes of an island away, as the loss of its host does."""

    def left(self) -> bool: ...


PATH = f"export PATH={Path(sys.executable).parent}:$PATH"


class Folder:
    """The engine of somebody else, whose jobs are files."""

    environment: Mapping[str, str] = {}
    hosts = 1

    def __init__(self, room: programs.Room) -> None:
        self._room = room
        self._folder = room.folder / "engine"
        self._folder.mkdir()

    def entry(self, **more: object) -> Entry:
        return {
            "engine": "tests.engines.folder_engine:FolderEngine",
            "setup": [f'python() {{ {sys.executable} "$@"; }}', 'exec() { "$@"; }'],
            "learner": {"threads": 1, "folder": str(self._room.folder / "learners")},
            "settings": {"folder": str(self._folder)},
            **more,
        }

    def jobs(self) -> list[str]:
        return sorted(file.stem for file in self._folder.glob("*.job"))

    async def lose(self, island: str) -> None:
        os.killpg(self._pid(f"{island}.0"), signal.SIGKILL)

    def left(self) -> bool:
        found = [facts(self._pid(job)) for job in self.jobs()]
        return any(known is not None and not known.zombie for known in found)

    def _pid(self, job: str) -> int:
        return int(json.loads((self._folder / f"{job}.job").read_text())["pid"])

    def close(self) -> None:
        for job in self.jobs():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid(job), signal.SIGKILL)


class Slurm:
    hosts = 2

    def __init__(self, cluster: slurm_cluster.SlurmCluster, folder: Path) -> None:
        self.environment: Mapping[str, str] = cluster.environment
        self._cluster, self._folder = cluster, folder

    def entry(self, **more: object) -> Entry:
        told = {"engine": "slurm", "cpus": 2, "learner": {"threads": 1}, "setup": [PATH]}
        return {**told, "settings": {"chdir": str(self._folder)}, **more}

    def jobs(self) -> list[str]:
        words = ("squeue", "--noheader", "--states=all", "--Format=JobID:20")
        return sorted(self._cluster.ask(*words).split())

    async def lose(self, island: str) -> None:
        """Lose its node; Slurm starts the same job again, on another one."""
        node = where(self._folder, island)
        await self._cluster.kill_node(node)

    def left(self) -> bool:
        return self._cluster.jobs() != ""


class Ray:
    environment: Mapping[str, str] = {}
    hosts = 1

    def __init__(self, cluster: ray_cluster.RayCluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder

    def entry(self, **more: object) -> Entry:
        return {
            "engine": "ray",
            "learner": {"threads": 1, "folder": str(self._folder / "learners")},
            "setup": [PATH],
            "settings": {"address": self._cluster.address, "folder": str(self._folder / "jobs")},
            **more,
        }

    def jobs(self) -> list[str]:
        return self._cluster.actors()

    async def lose(self, island: str) -> None:
        self._cluster.lose(self._cluster.node_of(where(self._folder, island)))

    def left(self) -> bool:
        words = ray_cluster.processes_with(str(self._folder / "learners"))
        return bool(words or self._cluster.actors() or [*(self._folder / "jobs").iterdir()])


class Kubernetes:
    hosts = 2

    def __init__(self, api: KubernetesApi, controllers: Controllers, kubeconfig: Path) -> None:
        paths = os.pathsep.join(["", str(programs.ROOT), *sys.path])
        self.environment: Mapping[str, str] = {"NO_PROXY": "127.0.0.1", "PYTHONPATH": paths}
        self._api, self._controllers, self._kubeconfig = api, controllers, kubeconfig

    def entry(self, **more: object) -> Entry:
        told = {"engine": "kubernetes", "image": "none", "learner": {"threads": 1}}
        return {**told, "settings": {"kubeconfig": str(self._kubeconfig)}, **more}

    def jobs(self) -> list[str]:
        return sorted(self._api.objects["jobsets"])

    async def lose(self, island: str) -> None:
        pods = self._controllers.pods.items()
        kill(next(program for pod, program in pods if f"-{island}-" in pod))

    def left(self) -> bool:
        return bool(self._controllers.pods)


def where(folder: Path, island: str) -> str:
    return records_in(folder / "run" / RECORDS_FILE).islands[island].where


@contextlib.asynccontextmanager
async def cluster_of(engine: str, room: programs.Room) -> AsyncIterator[Cluster]:
    """Open an engine's cluster in a room, or skip the test if this host lacks it."""
    needed: dict[str, Callable[[], str | None]] = {
        "slurm": slurm_cluster.missing,
        "ray": lambda: ray_cluster.MISSING,
        "kubernetes": lambda: None if which("kubectl") else "this host has no kubectl",
    }
    lacking = needed.get(engine, lambda: None)()
    if lacking is not None:
        pytest.skip(lacking)
    match engine:
        case "slurm":
            async with slurm_cluster.open_cluster(room) as slurm:
                yield Slurm(slurm, room.folder)
        case "ray":
            with ray_cluster.cluster_of(4) as ray:
                yield Ray(ray, room.folder)
        case "kubernetes":
            api = KubernetesApi()
            secret: Callable[[str, str], str] = lambda name, key: str(  # noqa: E731
                api.objects["secrets"][name]["stringData"][key]
            )
            names = {":7200": f":{free_port()}", "python": sys.executable}
            controllers = Controllers(api, Containers(room, names, secret))
            with served(api, room.folder) as kubeconfig:
                async with stepping(controllers):
                    yield Kubernetes(api, controllers, kubeconfig)
        case _:
            with contextlib.closing(Folder(room)) as folder:
                yield folder


@pytest.mark.long("tests/engines/test_launcher.py::test_a_restarted_hub_finds_what_was_placed")
@pytest.mark.parametrize("engine", ["folder", "slurm", "ray", "kubernetes"])
async def test_placed_islands_outlive_their_hub_and_leave_nothing_behind(
    tmp_path: Path, engine: str
) -> None:
    folder = tmp_path / "run"
    async with programs.open_room(tmp_path) as room, cluster_of(engine, room) as cluster:
        config = programs.write_config(
            tmp_path / "run.yaml",
            task_settings={"step_s": 0.05, "megabytes": 0.25},
            listen=f"127.0.0.1:{free_port()}",
            islands={"site": cluster.entry(count=2), "pair": cluster.entry(hosts=cluster.hosts)},
        )
        command = ("islands.cli", "run", config, "--folder", folder)

        async def joined(*names: str, times: int = 1) -> None:
            def done() -> bool:
                return all(
                    len(programs.logged(folder, "admitted", name=name)) >= times for name in names
                )

            await room.wait(done, 120.0)
            before = programs.merges(folder)
            await room.wait(lambda: programs.merges(folder) > before + 2)

        hub = room.start(*command, environment=cluster.environment)
        await joined("site-0", "site-1", "pair-0")
        assert "started site-2" in (await programs.control(room, "add", "site")).out
        refused = await programs.control(room, "add", "cloud", code=1)
        assert "there are no learners 'cloud' to add; there are: pair, site" in refused.out
        await joined("site-2")

        address, jobs = programs.hub_address(folder), cluster.jobs()
        assert len(jobs) == 4
        os.kill(hub.pid, signal.SIGKILL)
        hub.process.wait()
        again = room.start(*command, environment=cluster.environment)
        names = ("site-0", "site-1", "site-2", "pair-0")
        await room.wait(
            lambda: all(programs.logged(folder, "recognised", name=name) for name in names)
        )
        assert (programs.hub_address(folder), cluster.jobs()) == (address, jobs), (
            "nothing is placed twice"
        )

        await programs.control(room, "drain", "site-1")
        await room.wait(lambda: programs.logged(folder, "left", name="site-1"))
        await cluster.lose("site-0")
        await joined("site-0", times=2)
        assert engine in (await programs.control(room, "status")).out.lower()
        await programs.control(room, "stop")
        assert await room.ended(again) == 0, str(again)
        summary = programs.summary_of(folder) or {}
        assert (programs.imbalance(summary), programs.incarnations(summary)["site-0"]) == (0, 2)
        assert programs.incarnations(summary)["site-1"] == 1, "who was drained is not placed again"
        await room.wait(lambda: not cluster.left(), 60.0)
