"""A real cluster of Ray on this host, in a process of its own: `with cluster_of(4) as cluster: …`.

Ray's own `Cluster` has several nodes on one host, each with a raylet. It starts, and ends, at the
lines that this file's other half reads: `python -m tests.engines.ray_cluster`.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from islands.lab.faults.proxy import free_port

ROOT = Path(__file__).resolve().parents[2]
MISSING = None if find_spec("aiohttp_cors") else "it needs: pip install 'ray[default]'"
SUPERVISORS, SUPERVISOR = "SUPERVISOR_ACTOR_RAY_NAMESPACE", "_ray_internal_job_actor_"
"""The namespace of the actors that supervise jobs, and how their names begin."""
LIMIT_S = 30.0
LOOK_S = 0.1

ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}
HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
"""A node that is lost is found after about 4 s; by Ray's own values after 15 to 25 s."""


@dataclass(slots=True)
class RayCluster:
    """A cluster that a test has started; its head, which is none of `nodes`, runs no island."""

    cpus: int
    nodes: list[str]
    address: str = field(default_factory=lambda: f"http://127.0.0.1:{free_port()}")
    ids: dict[str, str] = field(default_factory=dict)
    _process: "subprocess.Popen[str] | None" = None

    def start(self) -> None:
        """Start a head, at the address of an earlier one if there was one, and the nodes."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engines.ray_cluster", str(self.cpus)],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.ask("start", port=int(self.address.rpartition(":")[2]))
        for node in self.nodes:
            self.ids[node] = str(self.ask("add", node=node))

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()

    def ask(self, what: str, **more: object) -> Any:  # noqa: ANN401  (each answer has its own form)
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"what": what, **more}) + "\n")
        process.stdin.flush()
        while line := process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)["answer"]
        raise RuntimeError(f"the cluster of Ray has ended while it was asked to {what}")

    def lose(self, node: str) -> None:
        """Kill a node's processes as a host's loss does; return once they are gone."""
        self.ask("lose", node=node)
        self.nodes.remove(node)

    def node_of(self, where: str) -> str:
        return next(name for name in self.nodes if self.ids[name][:12] in where)

    def actors(self) -> list[str]:
        """Return the jobs that have a supervising actor, which those that have ended have not."""
        return list(self.ask("actors"))

    def kill(self, job: str) -> None:
        self.ask("kill", job=job)


@contextlib.contextmanager
def cluster_of(nodes: int, *, cpus: int = 2) -> Iterator[RayCluster]:
    cluster = RayCluster(cpus, [f"node-{index}" for index in range(nodes)])
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def processes_with(word: str) -> list[int]:
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal() and int(place.name) != os.getpid():
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in words:
                found.append(int(place.name))
    return found


async def begun(word: str) -> int:
    """Wait until one process alone has a word on its command line; return its number."""
    async with asyncio.timeout(LIMIT_S):
        while len(found := processes_with(word)) != 1:  # noqa: ASYNC110  (no event comes from there)
            await asyncio.sleep(LOOK_S)
    return found[0]


async def gone(word: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        while processes_with(word):  # noqa: ASYNC110  (no event comes from there)
            await asyncio.sleep(LOOK_S)


# --- the other half ---------------------------------------------------------------------------


class _Host:
    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        self._nodes: dict[str, Any] = {}
        self._connected = False
        self._cluster: Any = None

    def start(self, port: int) -> None:
        from ray.cluster_utils import Cluster

        head = {
            "num_cpus": 0,
            "include_dashboard": True,
            "dashboard_port": port,
            "dashboard_agent_listen_port": free_port(),
            "_system_config": HEALTH,
            "node_name": "head",
        }
        self._cluster = Cluster(initialize_head=True, head_node_args=head)

    def add(self, node: str) -> str:
        self._nodes[node] = self._cluster.add_node(
            num_cpus=self._cpus, node_name=node, dashboard_agent_listen_port=free_port()
        )
        return str(self._nodes[node].node_id)

    def lose(self, node: str) -> None:
        self._cluster.remove_node(self._nodes.pop(node), allow_graceful=False)

    def _ray(self) -> Any:  # noqa: ANN401  (Ray's module)
        import ray

        if not self._connected:
            ray.init(self._cluster.address, namespace=SUPERVISORS, log_to_driver=False)
            self._connected = True
        return ray

    def actors(self) -> list[str]:
        names = self._ray().util.list_named_actors()
        return sorted(name.removeprefix(SUPERVISOR) for name in names if SUPERVISOR in name)

    def kill(self, job: str) -> None:
        self._ray().kill(self._ray().get_actor(f"{SUPERVISOR}{job}"))


def main() -> None:
    """Answer lines until there are no more; the nodes then end with this process."""
    host = _Host(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        told = json.loads(line)
        answer = getattr(host, told.pop("what"))(**told)
        answers.write(json.dumps({"answer": answer}) + "\n")


if __name__ == "__main__":
    main()
