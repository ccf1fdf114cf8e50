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

ROOT = Path(__file__).resolve().parents[2]
MISSING = None if find_spec("ray") else "ray is not installed: pip install 'islands[ray]'"
NAMESPACE = "islands"
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
    """A cluster that a test has started.

    Attributes:
        cpus: cores of each node.
        address: host:port of its head.
        nodes: its nodes' names, without the head, which runs no island.
    """

    cpus: int
    address: str = ""
    nodes: list[str] = field(default_factory=list)
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
        self.address = str(self.ask("start", port=int(self.address.rpartition(":")[2] or 0)))
        for node in self.nodes:
            self.ask("add", node=node)

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

    def actors(self) -> list[str]:
        return list(self.ask("actors"))

    def groups(self) -> list[str]:
        return list(self.ask("groups"))

    def keys(self) -> list[str]:
        return list(self.ask("keys"))

    def kill(self, actor: str) -> None:
        """Kill an actor by `ray.kill`, as a person does."""
        self.ask("kill", actor=actor)

    def lose_all(self) -> None:
        """Kill the whole cluster, its head at last."""
        self.ask("lose_all")
        self.close()


@contextlib.contextmanager
def cluster_of(nodes: int, *, cpus: int = 2) -> Iterator[RayCluster]:
    cluster = RayCluster(cpus, nodes=[f"node-{index}" for index in range(nodes)])
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


async def gone(word: str, *, but: int = 0) -> None:
    """Wait until no process has a word on its command line, or no more than some."""
    async with asyncio.timeout(LIMIT_S):
        while len(processes_with(word)) > but:  # noqa: ASYNC110  (no event comes from there)
            await asyncio.sleep(LOOK_S)


# --- the other half ---------------------------------------------------------------------------


class _Host:
    """The process that has Ray's `Cluster`."""

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        self._nodes: dict[str, Any] = {}
        self._connected = False
        self._cluster: Any = None

    def start(self, port: int) -> str:
        from ray.cluster_utils import Cluster

        head = {
            "num_cpus": 0,
            "include_dashboard": False,
            "_system_config": HEALTH,
            "node_name": "head",
            "gcs_server_port": port or None,
        }
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        return str(self._cluster.address)

    def add(self, node: str) -> None:
        self._nodes[node] = self._cluster.add_node(num_cpus=self._cpus, node_name=node)

    def lose(self, node: str) -> None:
        self._cluster.remove_node(self._nodes.pop(node), allow_graceful=False)

    def lose_all(self) -> None:
        self._ray().shutdown()
        for node in (*self._nodes.values(), self._cluster.head_node):
            self._cluster.remove_node(node, allow_graceful=False)

    def _ray(self) -> Any:  # noqa: ANN401  (Ray's module)
        import ray

        if not self._connected:
            ray.init(self._cluster.address, namespace=NAMESPACE, log_to_driver=False)
            self._connected = True
        return ray

    def actors(self) -> list[str]:
        return sorted(self._ray().util.list_named_actors())

    def kill(self, actor: str) -> None:
        self._ray().kill(self._ray().get_actor(actor))

    def groups(self) -> list[str]:
        told = self._ray().util.placement_group_table().values()
        return [each["name"] for each in told if each["state"] != "REMOVED"]

    def keys(self) -> list[str]:
        from ray.experimental import internal_kv

        self._ray()
        found = internal_kv._internal_kv_list("islands:", namespace="islands")  # noqa: SLF001
        return [key.decode() for key in found]


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
