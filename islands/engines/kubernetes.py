"""The engine Kubernetes: each island that the hub places is a JobSet of its own.

JobSets of one island each, since Kueue admits a JobSet as a whole, and a JobSet with a failed job
ends the others: islands must wait for nobody. A JobSet carries the run's mark, and its name ends
with five digits of the mark and the attempt, so that to place an attempt twice makes one. Its
Secret belongs to it, so that both go together.

The API is asked by `kubectl`, in its raw mode, which is that of all its versions.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from islands.engines import engine
from islands.engines import kubernetes_manifests as manifests
from islands.engines.engine import run_command, said_by
from islands.engines.kubernetes_jobs import ApiObject, jobs_of, podless
from islands.protocol.errors import SettingsError

POLL_S = 10.0
TIMEOUT_S = 30
"""Longest time that the API may take for an answer."""
PAGE = 500
"""Most objects in one answer."""
DIGITS = 5
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
INSTALL = (
    "JobSet is not installed there; its administrator installs it (kubectl apply --server-side "
    "-f …/jobset/releases/download/v0.12.0/manifests.yaml, of kubernetes-sigs)"
)
EXISTS, GONE, FORBIDDEN = "(AlreadyExists)", "(NotFound)", ("(Forbidden)", "(Unauthorized)")
"""Reasons of the API's own, as kubectl tells them."""
SERVERS = re.compile(r"^(Error from server( \(\w+\))?|The request is invalid)(: |$)")
BUSY = (
    *("(conflict)", "(toomanyrequests)", "(internalerror)", "(serviceunavailable)"),
    *("an error on the server", "exceeded quota", "timeout", "timed out"),
)
"""What the API says, in small letters, while it has no room or no time."""
NO_CLUSTER = ("no such file", "current-context", "does not exist", "missing or incomplete", "yaml")
"""What kubectl says of itself if it does not know where the API is."""


class Kubernetes:
    """Places islands as JobSets, through `kubectl`."""

    poll_s = POLL_S

    def __init__(self, of: engine.RunMark, settings: Mapping[str, str]) -> None:
        self._settings = manifests.ClusterSettings.of(settings)
        self._of = of
        self._labels = manifests.labels_of(of)

    # --- the port -----------------------------------------------------------------------------

    def place(self, island: engine.Island) -> str:
        """Make the island's JobSet, then the Secret that its pods wait for; both once alone."""
        placed = self._placed(island)
        manifest = self._manifest(island, placed)
        strict = {"fieldValidation": "Strict"}
        self._ask("create", self._url(manifests.PLURAL, **strict), manifest, fine=EXISTS)
        secrets = {key: island.environment[key] for key in placed.secrets}
        if secrets:
            try:
                made = self._ask("get", self._url(f"{manifests.PLURAL}/{placed.jobset}"))
                secret = self._secret(placed, secrets, json.loads(made)["metadata"]["uid"])
                self._ask("create", self._url("secrets"), secret, fine=EXISTS)
            except (engine.EngineAway, engine.Unplaceable):
                # Without its Secret, its pods would wait for ever.
                with suppress(engine.EngineAway, engine.Unplaceable):
                    self.end(placed.jobset, at_once=True)
                raise
        return placed.jobset

    def end(self, job: str, *, at_once: bool) -> None:
        """Delete a JobSet; it is listed until its pods have ended."""
        after = {"propagationPolicy": "Foreground"}
        self._ask("delete", self._url(f"{manifests.PLURAL}/{job}", **after), fine=GONE)
        if at_once:
            pods = {"labelSelector": f"{manifests.JOBSET_NAME}={job}", "gracePeriodSeconds": "0"}
            self._ask("delete", self._url("pods", **pods), fine=GONE)

    def list(self) -> list[engine.Job]:
        """Return the run's JobSets, by three calls however many there are."""
        where = {"labelSelector": ",".join(f"{k}={v}" for k, v in self._labels.items())}
        jobsets = list(self._pages(manifests.PLURAL, **where))
        pods = list(self._pages("pods", **where))
        events: list[ApiObject] = []
        if podless(jobsets, pods):
            events = list(self._pages("events", fieldSelector="reason=FailedCreate"))
        return jobs_of(jobsets, pods, events)

    def describe(self, island: engine.Island) -> str:
        return engine.yaml_of(self._manifest(island, self._placed(island)))

    # --- manifests ----------------------------------------------------------------------------

    def _placed(self, island: engine.Island) -> manifests.Placed:
        attempt = f"{self._of.mark}/{island.name}/{island.attempt}".encode()
        ending = f"-{hashlib.sha256(attempt).hexdigest()[:DIGITS]}"
        name = manifests.jobset_name(("islands", self._of.run), island, room=len(ending)) + ending
        hidden = {key: (name, key) for key in island.secrets if key in island.environment}
        return manifests.Placed(name, hidden)

    def _manifest(self, island: engine.Island, placed: manifests.Placed) -> manifests.Manifest:
        try:
            return manifests.island_jobset(island, placed)
        except SettingsError as error:
            raise engine.Unplaceable(f"{island.name}: {error}") from error

    def _secret(
        self, placed: manifests.Placed, secrets: Mapping[str, str], uid: str
    ) -> manifests.Manifest:
        """Return the Secret of a JobSet, which is deleted with it."""
        name = placed.jobset
        owner = {"apiVersion": manifests.API_VERSION, "kind": "JobSet", "name": name, "uid": uid}
        about = {"name": name, "labels": self._labels, "ownerReferences": [owner]}
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
        return {**secret, "metadata": about, "stringData": dict(secrets)}

    # --- the API ------------------------------------------------------------------------------

    @cached_property
    def _namespace(self) -> str:
        """The namespace: the setting, or that of the pod or of the context."""
        settings = self._settings
        if settings.namespace:
            return settings.namespace
        if not (settings.kubeconfig or settings.context) and _in_pod():
            return NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else "default"
        words = ("config", "view", "--minify", "--output=jsonpath={..namespace}")
        return self._kubectl(words).strip() or "default"

    def _url(self, path: str, **query: str) -> str:
        """Return the path of a kind's objects, or of one of them, below the API's address."""
        group = f"/apis/{manifests.API_VERSION}" if path.startswith(manifests.PLURAL) else "/api/v1"
        return f"{group}/namespaces/{self._namespace}/{path}?{urlencode(query)}".rstrip("?")

    def _pages(self, kind: str, **query: str) -> Iterator[ApiObject]:
        after = {"limit": str(PAGE)}
        while True:
            page: Any = json.loads(self._ask("get", self._url(kind, **query, **after)))
            yield from page["items"]
            after["continue"] = page["metadata"].get("continue") or ""
            if not after["continue"]:
                return

    def _ask(
        self, verb: str, url: str, body: manifests.Manifest | None = None, *, fine: str = ""
    ) -> str:
        """Return what the API answers; `fine` is a reason of its that is no error here."""
        file = () if body is None else ("--filename=-",)
        return self._kubectl((verb, f"--raw={url}", *file), json.dumps(body), fine)

    def _kubectl(self, words: tuple[str, ...], text: str = "", fine: str = "") -> str:
        settings = self._settings
        where = {"kubeconfig": settings.kubeconfig, "context": settings.context}
        options = [f"--{key}={value}" for key, value in where.items() if value]
        command = ("kubectl", *words, *options, f"--request-timeout={TIMEOUT_S}s")
        ended = run_command("kubernetes", command, text)
        if ended.returncode and not (fine and fine in ended.stderr):
            raise refusal(said_by("kubectl", ended.stderr))
        return ended.stdout


def refusal(said: str) -> engine.EngineAway | engine.Unplaceable:
    low, own = said.lower(), SERVERS.sub("", said)
    if any(sign in low for sign in BUSY):
        return engine.EngineAway(f"kubernetes has no room or no time: {own}")
    if GONE in said and "namespaces" not in said:
        return engine.Unplaceable(
            f"kubernetes knows no {manifests.PLURAL}.{manifests.GROUP}: {INSTALL}"
        )
    if any(sign in said for sign in FORBIDDEN):
        return engine.Unplaceable(f"kubernetes does not allow it: {own}")
    if own != said:
        return engine.Unplaceable(f"kubernetes refuses it: {own or said}")
    if any(sign in low for sign in NO_CLUSTER):
        sentence = f"{said.rstrip('.')}; set settings.kubeconfig or settings.context"
        return engine.Unplaceable(f"no cluster is named: {sentence}")
    return engine.EngineAway(f"kubernetes does not answer: {said}")


def _in_pod() -> bool:
    """Return whether this is a pod of the cluster itself, without a kubeconfig."""
    home = Path.home() / ".kube" / "config"
    configured = os.environ.get("KUBECONFIG") or home.exists()
    return "KUBERNETES_SERVICE_HOST" in os.environ and not configured
