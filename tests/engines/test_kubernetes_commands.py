"""What manifests of a hub and of islands say, run as it stands: only paths and addresses change."""

import signal
from functools import partial
from pathlib import Path

import pytest
import yaml

from islands.engines.engine import RunMark
from islands.engines.hub import Joining, island_of
from islands.engines.kubernetes_manifests import Placed, island_jobset
from islands.engines.needs import Needs
from islands.lab.faults.proxy import free_port
from tests.engines.kubernetes_host import Containers, Manifest
from tests.integration.programs import (
    ROOT,
    Room,
    control,
    imbalance,
    incarnations,
    logged,
    merges,
    open_room,
    summary_of,
    write_config,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


NAMES = ("one-0", "pair-0")


async def deployed(room: Room) -> tuple[Containers, Manifest, dict[str, Manifest]]:
    """The hub of deploy/kubernetes, and an island of one host and one of two, by name."""
    hub = f"127.0.0.1:{free_port()}"
    names = {
        "/etc/islands": f"{room.folder}/config",
        "/var/lib/islands": str(room.folder),
        "/run/secrets/islands": f"{room.folder}/secrets",
        "pair-0-hosts-0-0.pair-0": "127.0.0.1",
        ":7200": f":{free_port()}",
        **dict.fromkeys(("0.0.0.0:7070", "127.0.0.1:7070", "first-hub:7070"), hub),
    }
    (room.folder / "config").mkdir()
    write_config(room.folder / "config" / "run.yaml", run={"budget_tokens": 10**9}, learners=0)
    (room.folder / "secrets").mkdir(mode=0o700)
    token = room.folder / "secrets" / "token"
    token.touch(mode=0o600)
    token.write_text("a-token-of-this-test-and-none-else\n")
    joining = Joining(
        RunMark("test", ""),
        "ws://first-hub:7070/supervisor",
        task="islands.lab.toys.toy_workload:Sleeping",
    )
    entries = {
        name: Needs("kubernetes", hosts=hosts, image="none", learner={"threads": 1})
        for name, hosts in zip(NAMES, (1, 2), strict=True)
    }
    islands = {
        name: island_jobset(
            island_of(name, needs, joining),
            Placed(name, {"ISLANDS_TOKEN": (name, "token")}),
        )
        for name, needs in entries.items()
    }
    manifests = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/hub.yaml").read_text()))
    (hub_set,) = (each for each in manifests if each["kind"] == "StatefulSet")
    return (
        Containers(room, names, lambda _, key: (token.parent / key).read_text()),
        hub_set,
        islands,
    )


@pytest.mark.long(
    "tests/engines/test_kubernetes_manifests.py::test_the_command_is_that_of_a_learner"
)
async def test_a_run_goes_as_its_manifests_say(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        cluster, hub_set, islands = await deployed(room)
        run = tmp_path / "run"
        hub_container = hub_set["spec"]["template"]["spec"]["containers"][0]
        assert not cluster.probed(hub_container, "readinessProbe")
        hub = cluster.start(hub_container)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            await room.wait(partial(cluster.probed, hub_container, probe))
        containers = {}
        for name, jobset in islands.items():
            spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
            containers[name] = spec["template"]["spec"]["containers"][0]
        one = cluster.start(containers["one-0"])
        pair = [cluster.start(containers["pair-0"], rank) for rank in range(spec["completions"])]
        assert len(pair) == 2
        await room.wait(lambda: all(logged(run, "admitted", name=name) for name in NAMES))

        one.process.send_signal(signal.SIGTERM)  # as the node's kubelet, when it is drained
        assert await room.ended(one) == 143
        one = cluster.start(containers["one-0"])  # as its Job does then
        await room.wait(lambda: len(logged(run, "admitted", name="one-0")) > 1)

        await control(room, "drain", "pair-0")
        assert [await room.ended(host) for host in pair] == [0, 0]
        before = merges(run)
        await room.wait(lambda: merges(run) > before)

        await control(room, "stop")
        assert await room.ended(one) == 0
        assert await room.ended(hub) == 0
        summary = summary_of(run) or {}
        assert imbalance(summary) == 0
        assert incarnations(summary) == {"one-0": 2, "pair-0": 1}
