"""The engine Kubernetes: each island that the hub places is a JobSet of its own.

    kubernetes = Kubernetes(of, {"namespace": "training"})

JobSets of one island each, since Kueue admits a JobSet as a whole, and a JobSet with a failed job
ends the others: islands must wait for nobody. A JobSet carries the run's mark, its name ends with
five digits of chance, and its Secret belongs to it, so that both go together.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from islands.engines.engine import EngineAway, Island, Job, RunMark, Unplaceable
from islands.engines.kubernetes_jobs import Told, jobs_of, podless
from islands.engines.kubernetes_manifests import (
    API_VERSION,
    GROUP,
    JOBSET_NAME,
    PLURAL,
    VERSION,
    ClusterSettings,
    Manifest,
    Mark,
    Placed,
    dns_label,
    island_jobset,
    jobset_name,
    text_of,
)
from islands.protocol.errors import SettingsError, not_installed

POLL_S = 10.0
TIMEOUT_S = (10.0, 30.0)
"""Longest time to connect to the API, and to wait for its answer."""
PAGE = 500
"""Most objects in one answer."""
CHANCE_BYTES = 3
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
INSTALL = (
    "JobSet is not installed there; its administrator installs it (kubectl apply --server-side "
    "-f …/jobset/releases/download/v0.12.0/manifests.yaml, of kubernetes-sigs)"
)
NOT_FOUND, CONFLICT, FORBIDDEN, UNAUTHORIZED, BUSY, BROKEN = 404, 409, 403, 401, 429, 500


class Kubernetes:
    """Places islands as JobSets, through the official client.

    Args:
        of: the run whose islands these are.
        settings: where the cluster is; see `ClusterSettings`.
    """

    poll_s = POLL_S

    def __init__(self, of: RunMark, settings: Mapping[str, str]) -> None:
        self._settings = ClusterSettings.of(settings)
        self._mark = Mark(of.run, dns_label(of.mark) if not of.mark.isalnum() else of.mark)

    # --- the port -----------------------------------------------------------------------------

    def place(self, island: Island) -> str:
        """Make the island's JobSet, then the Secret that its pods wait for."""
        placed = self._placed(island, f"-{secrets.token_hex(CHANCE_BYTES)[:5]}")
        manifest = self._manifest(island, placed)
        with self._told():
            made = self._custom.create_namespaced_custom_object(
                *(GROUP, VERSION, self._namespace, PLURAL, manifest),
                field_validation="Strict",
                _request_timeout=TIMEOUT_S,
            )
        told = {key: island.environment[key] for key in placed.secrets}
        if told:
            try:
                with self._told():
                    self._make_secret(placed, told, made["metadata"]["uid"])
            except (EngineAway, Unplaceable):
                with contextlib.suppress(EngineAway, Unplaceable):
                    self.end(placed.jobset, at_once=True)
                raise
        return placed.jobset

    def end(self, job: str, *, at_once: bool) -> None:
        """Delete a JobSet; it is listed until its pods have ended."""
        with self._told(gone_is_fine=True):
            self._custom.delete_namespaced_custom_object(
                *(GROUP, VERSION, self._namespace, PLURAL, job),
                propagation_policy="Foreground",
                _request_timeout=TIMEOUT_S,
            )
        if at_once:
            with self._told(gone_is_fine=True):
                self._core.delete_collection_namespaced_pod(
                    self._namespace,
                    label_selector=f"{JOBSET_NAME}={job}",
                    grace_period_seconds=0,
                    _request_timeout=TIMEOUT_S,
                )

    def list(self) -> list[Job]:
        """Return the run's JobSets, by three calls however many there are."""
        where = self._mark.selector
        with self._told():
            core = self._core
            jobsets = list(self._pages(self._jobsets, label_selector=where))
            pods = list(self._pages(core.list_namespaced_pod, label_selector=where))
            events: list[Told] = []
            if podless(jobsets, pods):
                failed = "reason=FailedCreate"
                events = list(self._pages(core.list_namespaced_event, field_selector=failed))
        return jobs_of(jobsets, pods, events)

    def describe(self, island: Island) -> str:
        """Return the island's manifest as YAML; its name would get five more digits."""
        return text_of(self._manifest(island, self._placed(island, "")))

    def close(self) -> None:
        """Let go of the connections."""
        if "_client" in self.__dict__:
            with contextlib.suppress(AttributeError):  # of versions that close with the process
                self._client.close()

    # --- manifests ----------------------------------------------------------------------------

    def _placed(self, island: Island, chance: str) -> Placed:
        words = ("islands", self._mark.run)
        name = jobset_name(words, island, room=len(chance)) + chance
        hidden = {key: (name, key) for key in island.secrets if key in island.environment}
        return Placed(self._mark, name, secrets=hidden)

    def _manifest(self, island: Island, placed: Placed) -> Manifest:
        try:
            return island_jobset(island, placed)
        except SettingsError as error:
            raise Unplaceable(f"{island.name}: {error}") from error

    def _make_secret(self, placed: Placed, told: Mapping[str, str], uid: str) -> None:
        """Make the Secret of a JobSet, which is deleted with it."""
        kinds = _kubernetes().client
        owner = kinds.V1OwnerReference(
            api_version=API_VERSION, kind="JobSet", name=placed.jobset, uid=uid
        )
        about = kinds.V1ObjectMeta(
            name=placed.jobset, labels=self._mark.labels(), owner_references=[owner]
        )
        body = kinds.V1Secret(metadata=about, string_data=dict(told), type="Opaque")
        self._core.create_namespaced_secret(self._namespace, body, _request_timeout=TIMEOUT_S)

    # --- the API ------------------------------------------------------------------------------

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401  (of a package that may be missing)
        """The client of the cluster, as a kubeconfig or the pod that this is tells it."""
        config = _kubernetes().config
        told = self._settings
        if not (told.kubeconfig or told.context) and _in_pod():
            configuration = _kubernetes().client.Configuration()
            config.load_incluster_config(client_configuration=configuration)
            return _kubernetes().client.ApiClient(configuration)
        return config.new_client_from_config(told.kubeconfig or None, told.context or None)

    @cached_property
    def _custom(self) -> Any:  # noqa: ANN401
        return _kubernetes().client.CustomObjectsApi(self._client)

    @cached_property
    def _core(self) -> Any:  # noqa: ANN401
        return _kubernetes().client.CoreV1Api(self._client)

    @cached_property
    def _namespace(self) -> str:
        """The namespace: told, or that of the pod or of the context."""
        told = self._settings
        if told.namespace:
            return told.namespace
        if not (told.kubeconfig or told.context) and _in_pod():
            return NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else "default"
        contexts, current = _kubernetes().config.list_kube_config_contexts(told.kubeconfig or None)
        named = [each for each in contexts if each["name"] == told.context]
        context: Mapping[str, Any] = (named[0] if named else current)["context"]
        return str(context.get("namespace") or "default")

    def _jobsets(self, namespace: str, **options: object) -> object:
        return self._custom.list_namespaced_custom_object(
            GROUP, VERSION, namespace, PLURAL, **options
        )

    def _pages(self, call: Callable[..., object], **options: object) -> Iterator[Told]:
        after = ""
        while True:
            page = {"limit": PAGE, "_request_timeout": TIMEOUT_S, "_preload_content": False}
            answer: Any = call(self._namespace, **options, **page, **_after(after))
            told = json.loads(answer.data)
            yield from told["items"]
            after = told["metadata"].get("continue") or ""
            if not after:
                return

    @contextmanager
    def _told(self, *, gone_is_fine: bool = False) -> Iterator[None]:
        """Raise what the client or the API says as an error of an engine's."""
        package = _kubernetes()
        try:
            yield
        except package.client.exceptions.ApiException as error:
            said = _said(error)
            if gone_is_fine and error.status == NOT_FOUND:
                return
            raise refusal(int(error.status or 0), said) from error
        except (package.config.ConfigException, yaml.YAMLError) as error:
            said = " ".join(str(error).split()).rstrip(".")
            raise Unplaceable(
                f"no cluster is named: {said}; set settings.kubeconfig or settings.context"
            ) from error
        except package.unreachable as error:
            raise EngineAway(f"kubernetes does not answer: {_reason(error)}") from error


def refusal(status: int, said: str) -> EngineAway | Unplaceable:
    """Return the error that an answer of the API stands for."""
    quota = status == FORBIDDEN and "exceeded quota" in said
    if quota or status in (CONFLICT, BUSY) or status >= BROKEN or status == 0:
        return EngineAway(f"kubernetes has no room or no time: {said}")
    if status == NOT_FOUND and "namespaces" not in said:
        return Unplaceable(f"kubernetes knows no {PLURAL}.{GROUP}: {INSTALL}")
    if status in (UNAUTHORIZED, FORBIDDEN):
        return Unplaceable(f"kubernetes does not allow it: {said}")
    return Unplaceable(f"kubernetes refuses it: {said}")


class _Package:
    """The official client, with the errors of a cluster that is not reached."""

    def __init__(self) -> None:
        try:
            import kubernetes
            import kubernetes.config
            import urllib3
        except ImportError as error:
            raise Unplaceable(not_installed("the engine kubernetes", "kubernetes")) from error
        self.client = kubernetes.client
        self.config = kubernetes.config
        self.unreachable = (urllib3.exceptions.HTTPError, OSError)


def _kubernetes() -> Any:  # noqa: ANN401  (of a package that may be missing)
    """Return the official client."""
    return _Package()


def _in_pod() -> bool:
    """Return whether this is a pod of the cluster itself, without a kubeconfig."""
    home = Path.home() / ".kube" / "config"
    told = os.environ.get("KUBECONFIG") or home.exists()
    return "KUBERNETES_SERVICE_HOST" in os.environ and not told


def _after(token: str) -> dict[str, str]:
    return {"_continue": token} if token else {}


def _said(error: Any) -> str:  # noqa: ANN401  (an ApiException)
    """Return the API's own words: the message of its Status, or else what the body says."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return " ".join(str(json.loads(body)["message"]).split())
    return " ".join(f"{error.status} {error.reason or body or ''}".split())


def _reason(error: BaseException) -> str:
    """Return the innermost reason of an error of a connection, as one line."""
    inner = getattr(error, "reason", None)
    return " ".join(str(inner if isinstance(inner, BaseException) else error).split())
