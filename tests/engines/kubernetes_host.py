"""One host in the place of a cluster: containers of manifests as processes on loopback.

What stands in a manifest is run as it stands: only paths and addresses are those of here.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.engines.kubernetes_api import KubernetesApi, Object
from tests.integration.programs import LOOK_S, Program, Room, clean_environment

Manifest = dict[str, Any]
INDEX = "metadata.labels['batch.kubernetes.io/job-completion-index']"


@dataclass
class Containers:
    """Containers that run here, with `names` of manifests and what each is here."""

    room: Room
    names: Mapping[str, str]
    secret: Callable[[str, str], str]

    def mapped(self, text: str, variables: Mapping[str, str]) -> str:
        """A text of a manifest, expanded as Kubernetes does, with the names of here."""

        def value(found: re.Match[str]) -> str:
            return "$" if found[0] == "$$" else variables.get(found[1], found[0])

        text = re.sub(r"\$\$|\$\((\w+)\)", value, text)
        for there, here in self.names.items():
            text = text.replace(there, here)
        return text

    def variables(self, container: Manifest, rank: int) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in container.get("env", []):
            told = each.get("valueFrom", {})
            if "secretKeyRef" in told:
                place = told["secretKeyRef"]
                found[each["name"]] = self.secret(place["name"], place["key"])
            elif "fieldRef" in told:
                assert told["fieldRef"]["fieldPath"] == INDEX
                found[each["name"]] = str(rank)
            else:
                found[each["name"]] = self.mapped(each["value"], found)
        return found

    def start(self, container: Manifest, rank: int = 0) -> Program:
        """Start a container's command, whose processes are a group."""
        variables = self.variables(container, rank)
        words = ["setsid", *container["command"], *container.get("args", [])]
        return self.room.start_words(
            [self.mapped(word, variables) for word in words], environment=self.path | variables
        )

    def probed(self, container: Manifest, kind: str) -> bool:
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


def kill(program: Program) -> None:
    """Kill all processes of a container; this is no end in order."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)


@dataclass
class Controllers:
    """In the place of JobSet's and Job's controllers, and of nodes: pods are processes here.

    It makes a pod for each host of a JobSet, and another in the place of one that failed; it ends
    those of a JobSet that is deleted, and tells how each has ended.
    """

    api: KubernetesApi
    containers: Containers
    pods: dict[str, Program] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def step(self) -> None:
        for name in list(self.pods):
            self._look_at(name)
        for name, jobset in list(self.api.objects["jobsets"].items()):
            mine = [pod for pod in self.pods if pod.startswith(f"{name}-hosts-")]
            if "deletionTimestamp" in jobset["metadata"]:
                for pod in set(mine) - self.asked:
                    self.pods[pod].process.send_signal(signal.SIGTERM)
                self.asked |= set(mine)
            elif not jobset.get("status"):
                self._fill(name, jobset)

    def _look_at(self, name: str) -> None:
        """Tell of a pod whose process has ended, or forget it if it was to end."""
        code = self.pods[name].process.poll()
        pod = self.api.objects["pods"].get(name)
        if code is None and pod is not None:
            return
        program = self.pods.pop(name)
        if pod is None:  # it was deleted without a time of grace
            kill(program)
        elif name in self.asked:
            self.api.forget_pod(name)
        else:
            end = {"exitCode": code, "reason": "Error", "message": program.err[-2000:]}
            state = {"name": "island", "state": {"terminated": end}}
            phase = "Failed" if code else "Succeeded"
            pod["status"] = {"phase": phase, "containerStatuses": [state]}

    def _fill(self, name: str, jobset: Object) -> None:
        job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
        container = job["template"]["spec"]["containers"][0]
        told = [each.get("valueFrom", {}).get("secretKeyRef") for each in container.get("env", [])]
        if {each["name"] for each in told if each} - set(self.api.objects["secrets"]):
            return  # as a node, which starts no container before its Secret is there
        done = self._of(name, "Succeeded")
        if len(done) == job["completions"]:
            condition = {"type": "Completed", "status": "True", "message": "all jobs completed"}
            jobset["status"] = {"conditions": [condition]}
        for index in set(range(job["completions"])) - done - self._of(name, "Running"):
            pod = self.api.add_pod(name, index, "Running")["metadata"]["name"]
            names = {**self.containers.names, f"{name}-hosts-0-0.{name}": "127.0.0.1"}
            self.pods[pod] = replace(self.containers, names=names).start(container, index)

    def _of(self, jobset: str, phase: str) -> set[int]:
        return {
            int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
            for name, pod in list(self.api.objects["pods"].items())
            if name.startswith(f"{jobset}-hosts-") and pod["status"]["phase"] == phase
        }


@contextlib.asynccontextmanager
async def stepping(controllers: Controllers) -> AsyncIterator[None]:
    """Let controllers do their work while the block runs."""

    async def step() -> None:
        while True:
            controllers.step()
            await asyncio.sleep(LOOK_S)

    try:
        async with asyncio.TaskGroup() as group:  # noqa: TID251  real time
            task = group.create_task(step())
            yield
            task.cancel()
    finally:
        for program in controllers.pods.values():
            kill(program)
