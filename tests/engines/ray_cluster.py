"""A real cluster of Ray on this host, in a process of its own: `with cluster_of(4) as cluster: …`.

Ray's own `Cluster` has several nodes on one host, each with a raylet. It starts, and ends, at the
lines that this file's other half reads: `python -m tests.engines.ray_cluster`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MISSING = None if find_spec("ray") else "ray is not installed: pip install 'islands[ray]'"
NAMESPACE = "islands"

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
        address: host:port of its head.
        nodes: its nodes' names, without the head, which runs no island.
    """

    process: "subprocess.Popen[str]"
    address: str = ""
    nodes: list[str] = field(default_factory=list)

    def ask(self, what: str, **more: object) -> Any:  # noqa: ANN401  (each answer has its own form)
        """Have it do something, and return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"what": what, **more}) + "\n")
        self.process.stdin.flush()
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)["answer"]
        raise RuntimeError(f"the cluster of Ray has ended while it was asked to {what}")

    def lose(self, node: str) -> None:
        """Kill a node's processes as a host's loss does; return once they are gone."""
        self.ask("lose", node=node)
        self.nodes.remove(node)

    def add(self, node: str) -> None:
        """Add a node."""
        self.ask("add", node=node)
        self.nodes.append(node)

    def actors(self) -> list[str]:
        """Return the names of the actors that live."""
        return list(self.ask("actors"))

    def groups(self) -> list[str]:
        """Return the names of the placement groups that there are."""
        return list(self.ask("groups"))

    def keys(self) -> list[str]:
        """Return the keys that engines have left in the store."""
        return list(self.ask("keys"))

    def kill(self, actor: str) -> None:
        """Kill an actor by `ray.kill`, as a person does."""
        self.ask("kill", actor=actor)

    def shutdown(self) -> None:
        """End the whole cluster, its head at last."""
        self.ask("shutdown")

    def restart(self) -> None:
        """Start a cluster anew at the same address."""
        self.ask("restart", address=self.address)


@contextlib.contextmanager
def cluster_of(
    nodes: int, *, cpus: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[RayCluster]:
    """Start a cluster, and leave nothing of it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engines.ray_cluster", str(cpus)],
        cwd=ROOT,
        env={
            **os.environ,
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            **(environment or {}),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    cluster = RayCluster(process)
    try:
        cluster.address = str(cluster.ask("start"))
        for index in range(nodes):
            cluster.add(f"node-{index}")
        yield cluster
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()  # type: ignore[union-attr]


# --- the other half ---------------------------------------------------------------------------


class _Host:
    """The process that has Ray's `Cluster`."""

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        self._nodes: dict[str, Any] = {}
        self._connected = False
        self._cluster: Any = None

    def start(self, **more: object) -> str:
        from ray.cluster_utils import Cluster

        arguments = {
            "num_cpus": 0,
            "include_dashboard": False,
            "_system_config": HEALTH,
            "node_name": "head",
            **more,
        }
        self._cluster = Cluster(initialize_head=True, head_node_args=arguments)
        return str(self._cluster.address)

    def restart(self, address: str) -> None:
        self.start(port=int(address.rpartition(":")[2]))
        for node in list(self._nodes):
            self.add(node)

    def add(self, node: str) -> None:
        self._nodes[node] = self._cluster.add_node(num_cpus=self._cpus, node_name=node)

    def lose(self, node: str) -> None:
        self._cluster.remove_node(self._nodes.pop(node), allow_graceful=False)

    def shutdown(self) -> None:
        import ray

        ray.shutdown()
        self._connected = False
        for node in self._nodes.values():
            self._cluster.remove_node(node)
        self._cluster.remove_node(self._cluster.head_node)

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
