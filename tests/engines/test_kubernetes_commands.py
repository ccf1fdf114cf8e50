"""What the manifests of a run say, run as it stands: only paths and addresses are mapped."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.programs import (
    Program,
    Room,
    clean_environment,
    control,
    imbalance,
    incarnations,
    merges,
    open_room,
    summary_of,
    write_config,
)
from tests.integration.test_several_hosts import applied, free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

Manifest = dict[str, Any]
INDEX = "metadata.labels['batch.kubernetes.io/job-completion-index']"


@dataclass
class Cluster:
    """One host in the place of a cluster: starts the containers of manifests as processes.

    Args:
        room: Where they run.
        manifests: All of a run.
        names: What stands in manifests, and what it is here.
    """

    room: Room
    manifests: list[Manifest]
    names: Mapping[str, str]

    def of_kind(self, kind: str) -> list[Manifest]:
        """The objects of one kind."""
        return [each for each in self.manifests if each["kind"] == kind]

    def mapped(self, text: str, variables: Mapping[str, str]) -> str:
        """A text of a manifest, expanded as Kubernetes does, with the names of here."""

        def value(found: re.Match[str]) -> str:
            return "$" if found[0] == "$$" else variables.get(found[1], found[0])

        text = re.sub(r"\$\$|\$\((\w+)\)", value, text)
        for there, here in self.names.items():
            text = text.replace(there, here)
        return text

    def variables(self, container: Manifest, rank: int) -> dict[str, str]:
        """The variables of a container, in the order in which they refer to one another."""
        found: dict[str, str] = {}
        for each in container.get("env", []):
            told = each.get("valueFrom", {})
            if "secretKeyRef" in told:
                key = told["secretKeyRef"]["key"]
                found[each["name"]] = (self.room.folder / "secrets" / key).read_text()
            elif "fieldRef" in told:
                assert told["fieldRef"]["fieldPath"] == INDEX
                found[each["name"]] = str(rank)
            else:
                found[each["name"]] = self.mapped(each["value"], found)
        return found

    def start(self, container: Manifest, rank: int = 0) -> Program:
        """Start a container's command."""
        variables = self.variables(container, rank)
        words = [*container["command"], *container.get("args", [])]
        return self.room.start_words(
            [self.mapped(word, variables) for word in words], environment=self.path | variables
        )

    def probed(self, container: Manifest, kind: str) -> bool:
        """Whether a probe of a container succeeds."""
        words = [self.mapped(word, {}) for word in container[kind]["exec"]["command"]]
        limit_s = 3 * container[kind]["timeoutSeconds"]
        found = subprocess.run(
            words,
            capture_output=True,
            check=False,
            timeout=limit_s,
            env=clean_environment(self.path),
        )
        return found.returncode == 0

    @property
    def path(self) -> dict[str, str]:
        """A search path on which `python` is this one."""
        place = self.room.folder / "bin"
        if not place.exists():
            place.mkdir()
            (place / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
            (place / "python").chmod(0o755)
        return {"PATH": f"{place}:{Path(shutil.which('sh') or '/bin/sh').parent}:/usr/bin:/bin"}


async def deployed(room: Room) -> Cluster:
    """The manifests of a run with an island of one host and one of two."""
    islands = {
        name: {"engine": "kubernetes", "hosts": hosts, "learner": {"threads": 1}}
        for name, hosts in (("one", 1), ("pair", 2))
    }
    config = write_config(room.folder / "run.yaml", run={"budget_tokens": 10**9}, islands=islands)
    told = await room.run("islands.cli", "deploy", "kubernetes", config, "--image", "none")
    assert told.process.returncode == 0, str(told)
    names = {
        "/etc/islands": f"{room.folder}/config",
        "/var/lib/islands": str(room.folder),
        "/run/secrets/islands": f"{room.folder}/secrets",
        "test-pair-0-0-0.test": "127.0.0.1",
        ":7200": f":{free_port()}",
    }
    hub = f"127.0.0.1:{free_port()}"
    names |= dict.fromkeys(("0.0.0.0:7070", "127.0.0.1:7070", "test-hub:7070"), hub)
    cluster = Cluster(room, list(yaml.safe_load_all(told.out)), names)
    (room.folder / "config").mkdir()
    (config_map,) = cluster.of_kind("ConfigMap")
    for name, text in config_map["data"].items():
        (room.folder / "config" / name).write_text(text)
    (room.folder / "secrets").mkdir(mode=0o700)
    token = room.folder / "secrets" / "token"
    token.touch(mode=0o600)
    token.write_text("a-token-of-this-test-and-none-else\n")
    return cluster


@pytest.mark.long(
    "tests/engines/test_kubernetes_manifests.py::test_the_commands_are_those_of_a_hub_and_of_a_learner"
)
async def test_a_run_goes_as_its_manifests_say(tmp_path: Path) -> None:
    """The hub gets ready, islands join; one is asked to leave its node, one drained; all end."""
    async with open_room(tmp_path) as room:
        cluster = await deployed(room)
        (hub_set,), (jobset,) = cluster.of_kind("StatefulSet"), cluster.of_kind("JobSet")
        hub_container = hub_set["spec"]["template"]["spec"]["containers"][0]
        assert not cluster.probed(hub_container, "readinessProbe")
        hub = cluster.start(hub_container)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            await room.wait(partial(cluster.probed, hub_container, probe))
        jobs = {each["name"]: each["template"]["spec"] for each in jobset["spec"]["replicatedJobs"]}
        containers = {
            name: spec["template"]["spec"]["containers"][0] for name, spec in jobs.items()
        }
        one = cluster.start(containers["one-0"])
        pair = [
            cluster.start(containers["pair-0"], rank)
            for rank in range(jobs["pair-0"]["completions"])
        ]
        assert len(pair) == 2
        await room.wait(lambda: all(applied(tmp_path, name) for name in ("one-0", "pair-0")))

        one.process.send_signal(signal.SIGTERM)  # as the node's kubelet, when it is drained
        assert await room.ended(one) == 143
        one = cluster.start(containers["one-0"])  # as its Job does then
        await room.wait(lambda: len(applied(tmp_path, "one-0")) > 1)

        await control(room, "drain", "pair-0")
        assert [await room.ended(host) for host in pair] == [0, 0]
        before = merges(tmp_path / "run")
        await room.wait(lambda: merges(tmp_path / "run") > before)

        await control(room, "stop")
        assert await room.ended(one) == 0
        assert await room.ended(hub) == 0
        summary = summary_of(tmp_path / "run") or {}
        assert imbalance(summary) == 0
        assert incarnations(summary) == {"one-0": 2, "pair-0": 1}
