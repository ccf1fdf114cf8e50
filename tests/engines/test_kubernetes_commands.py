"""What the manifest of a hub says, run as it stands: only paths and addresses change."""

from functools import partial
from pathlib import Path

import pytest
import yaml

from islands.lab.faults.proxy import free_port
from tests.engines.kubernetes_host import Containers
from tests.integration.programs import ROOT, open_room, write_config

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.long("tests/test_deploy.py::test_the_hub_on_kubernetes_runs_the_documented_command")
async def test_a_hub_runs_and_is_probed_as_its_manifest_says(tmp_path: Path) -> None:
    """Islands' manifests are run by `test_placed_run.py`."""
    hub_at = f"127.0.0.1:{free_port()}"
    names = {
        "/etc/islands": f"{tmp_path}/config",
        "/var/lib/islands": str(tmp_path),
        "/run/secrets/islands": f"{tmp_path}/secrets",
        **dict.fromkeys(("0.0.0.0:7070", "127.0.0.1:7070", "first-hub:7070"), hub_at),
    }
    (tmp_path / "config").mkdir()
    write_config(tmp_path / "config" / "run.yaml", run={"budget_tokens": 10**9}, learners=0)
    (tmp_path / "secrets").mkdir(mode=0o700)
    token = tmp_path / "secrets" / "token"
    token.touch(mode=0o600)
    token.write_text("a-token-of-this-test-and-none-else\n")
    manifests = yaml.safe_load_all((ROOT / "deploy/kubernetes/hub.yaml").read_text())
    (hub_set,) = (each for each in manifests if each["kind"] == "StatefulSet")
    container = hub_set["spec"]["template"]["spec"]["containers"][0]
    async with open_room(tmp_path) as room:
        cluster = Containers(room, names, lambda _, key: (token.parent / key).read_text())
        assert not cluster.probed(container, "readinessProbe")
        hub = cluster.start(container)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            await room.wait(partial(cluster.probed, container, probe))
        hub.process.terminate()  # as the node's kubelet
        assert await room.ended(hub) == 0
