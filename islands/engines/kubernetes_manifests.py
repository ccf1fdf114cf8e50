"""Manifests of islands on Kubernetes, as plain dicts: an island is a Job of a JobSet.

Its hosts are the pods of one indexed Job. A mistake of its user's fails the Job at once, a node
that is lost or drained counts as no failure, and after six others the Job has failed.

A pod's command runs under a shell that answers SIGTERM with exit code 143. For a learner that was
asked to end has done what it should, and ends with 0; but Kubernetes asks whoever is on a node that
is to be drained, and a pod that ends with 0 then is a Job that is complete, and never comes back.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from islands.engines import engine
from islands.engines.needs import Needs
from islands.protocol.errors import OF_NO_USE, SettingsError

Manifest = dict[str, Any]
"""An object of Kubernetes, as its API takes it."""

GROUP, VERSION, PLURAL = "jobset.x-k8s.io", "v1alpha2", "jobsets"
API_VERSION = f"{GROUP}/{VERSION}"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
POD_INDEX = "batch.kubernetes.io/job-completion-index"
QUEUE = "kueue.x-k8s.io/queue-name"
REGION = "topology.kubernetes.io/region"

RUN, MARK, ROLE, NAME = "islands-run", "islands-mark", "islands-role", "islands-name"
"""Labels of what belongs to a run; the name of an island is an annotation, as no label has all."""

CONTAINER = "island"
HOSTS = "hosts"
"""The replicated job of a JobSet that is one island."""

NAME_MAX = 63
POD_SUFFIX = len("-0-65535-abcde")
"""What a pod's name has after those of its JobSet and of the replicated job."""

RETRIES = 6
GRACE_S = 45
"""A learner leaves within 30 s of SIGTERM."""
LOST_S = 30
"""A pod on a node that is not heard of is replaced after this; by default after 300 s."""
KEPT_S = 3600
"""A JobSet that has ended is deleted after this, unless the hub has ended it before."""
USER = 1000
"""The user and group in the image, who reads secrets and writes volumes."""

SPOT: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "gke": ("cloud.google.com/gke-spot", "true"),
        "eks": ("eks.amazonaws.com/capacityType", "SPOT"),
        "karpenter": ("karpenter.sh/capacity-type", "spot"),
        "aks": ("kubernetes.azure.com/scalesetpriority", "spot"),
    }
)
"""The label that nodes have which may be taken away, by who makes them."""

TPU_KIND, TPU_TOPOLOGY = "cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"
ANY_KIND = ("gpu", "tpu")

COMMAND = """\
trap 'asked=143; kill -TERM "$host"' TERM
/bin/sh -c "$0" &
host=$!
wait "$host"; code=$?
[ -z "$asked" ] || { wait "$host"; code=$asked; }
exit "$code"
"""
"""Runs the script that is its first argument; see the top of this file."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings of an entry, which docs/engines/kubernetes.md describes."""

    context: str = ""
    kubeconfig: str = ""
    namespace: str = ""
    queue: str = ""
    spot: str = ""
    nodes: str = ""
    topology: str = ""
    resource: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "ClusterSettings":
        engine.check_settings("kubernetes", settings, [each.name for each in fields(cls)])
        found = cls(**settings)
        labels("settings.nodes", found.nodes)
        if found.spot and found.spot not in SPOT:
            labels("settings.spot", found.spot, forms=f"one of {', '.join(SPOT)}, or label=value")
        return found

    @property
    def spot_label(self) -> tuple[str, str] | None:
        """The label of nodes that may be taken away; None if it is not known."""
        if not self.spot:
            return None
        return SPOT.get(self.spot) or next(iter(labels("settings.spot", self.spot).items()))


def labels(setting: str, text: str, *, forms: str = "label=value, or several") -> dict[str, str]:
    """Return labels that are written as label=value,label=value."""
    found: dict[str, str] = {}
    for each in filter(None, text.split(",")):
        label, equals, value = each.strip().partition("=")
        if not (label and equals and value):
            raise SettingsError(f"{setting} is {text!r}; it must be {forms}")
        found[label] = value
    return found


def dns_label(text: str, room: int = NAME_MAX) -> str:
    """Return a text as a name of Kubernetes: a-z, 0-9 and dashes, with a letter first.

    Where anything of it is lost, six digits of its hash tell it from others.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"i-{plain}".rstrip("-")
    if plain == text and len(plain) <= room:
        return plain
    mark = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{plain[: room - 7].rstrip('-')}-{mark}"


def literal(text: str) -> str:
    """Return a text of which Kubernetes makes this one: it replaces `$(NAME)`, and `$$` by `$`."""
    return re.sub(r"\$(?=[$(])", "$$", text)


# --- one island -------------------------------------------------------------------------------


def labels_of(run: engine.RunMark) -> dict[str, str]:
    """Return the labels by which the objects of a run are distinguished from others."""
    found = {RUN: dns_label(run.run), MARK: run.mark}
    return {key: value for key, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Placed:
    """The name of an island's JobSet, and the Secret and key that hold each secret variable."""

    jobset: str
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def first(self) -> str:
        """The name under which rank 0 is reached: JobSet's own, of the first pod of the job."""
        return f"{self.jobset}-{HOSTS}-0-0.{self.jobset}"


def _about(island: engine.Island) -> Manifest:
    labels = {**labels_of(island.of), ROLE: "learner"}
    return {"labels": labels, "annotations": {NAME: island.name}}


def _replicated_job(island: engine.Island, placed: Placed) -> Manifest:
    needs, about = island.needs, _about(island)
    codes = {"containerName": CONTAINER, "operator": "In", "values": [OF_NO_USE]}
    job = {
        "completionMode": "Indexed",
        "parallelism": needs.hosts,
        "completions": needs.hosts,
        "backoffLimit": RETRIES,
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": codes},
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
            ]
        },
        "template": {"metadata": about, "spec": _pod(island, placed)},
    }
    template = {"metadata": about, "spec": job}
    return {"name": HOSTS, "replicas": 1, "template": template}


def _pod(island: engine.Island, placed: Placed) -> Manifest:
    needs, settings = island.needs, ClusterSettings.of(island.needs.settings)
    if not needs.image:
        raise SettingsError("image is not set; kubernetes runs containers: name one with Islands")
    container = {
        "name": CONTAINER,
        "image": needs.image,
        "command": ["/bin/sh", "-c", COMMAND],
        "args": [literal(island.script())],
        "env": environment(island, placed),
        "resources": resources(needs, settings),
        "securityContext": {"allowPrivilegeEscalation": False},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if needs.hosts > 1:
        container["ports"] = [{"containerPort": port} for port in (engine.PORT, engine.PORT + 1)]
    return {
        "restartPolicy": "Never",  # the Job makes another pod, and knows by its exit code whether
        "terminationGracePeriodSeconds": GRACE_S,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": {"fsGroup": USER},
        **scheduling(needs, settings),
        "containers": [{key: value for key, value in container.items() if value}],
    }


def environment(island: engine.Island, placed: Placed) -> list[Manifest]:
    """Return the variables of an island's hosts, of which secrets name where they are."""
    shown = {k: v for k, v in island.environment.items() if k not in island.secrets}
    found: list[Manifest] = [{"name": k, "value": literal(v)} for k, v in shown.items()]
    for name, (secret, key) in placed.secrets.items():
        found.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    if island.needs.hosts > 1:
        index = {"fieldRef": {"fieldPath": f"metadata.labels['{POD_INDEX}']"}}
        found.append({"name": engine.RANK, "valueFrom": index})
        found.append({"name": engine.ADDRESS, "value": placed.first})
    return found


def resources(needs: Needs, settings: ClusterSettings) -> Manifest:
    """Return what each host asks for; of memory and accelerators that is its limit, too."""
    asked: dict[str, str] = {}
    if needs.cpus is not None:
        asked["cpu"] = f"{needs.cpus:g}"
    limits: dict[str, str] = {}
    if needs.memory_gib is not None:
        limits["memory"] = f"{round(needs.memory_gib * 1024)}Mi"
    if needs.accelerator is not None:
        limits[_resource(needs, settings)] = str(needs.accelerator[1])
    asked |= limits
    return {key: value for key, value in (("requests", asked), ("limits", limits)) if value}


def _resource(needs: Needs, settings: ClusterSettings) -> str:
    assert needs.accelerator is not None, "only of those that have one"
    tpu = needs.accelerator[0].lower().startswith("tpu")
    return settings.resource or ("google.com/tpu" if tpu else "nvidia.com/gpu")


def scheduling(needs: Needs, settings: ClusterSettings) -> Manifest:
    """Return which nodes a host may run on, and how long on one that is not heard of."""
    nodes = labels("settings.nodes", settings.nodes)
    tolerated = tolerations()
    if needs.region is not None:
        nodes[REGION] = needs.region
    if needs.accelerator is not None:
        nodes |= _kind(needs.accelerator[0], settings)
        taint = {"key": _resource(needs, settings), "operator": "Exists", "effect": "NoSchedule"}
        tolerated.append(taint)
    if needs.preemptible:
        if settings.spot_label is None:
            raise SettingsError(
                "preemptible is set and settings.spot is not; it must tell how such nodes are "
                f"labelled: one of {', '.join(SPOT)}, or label=value"
            )
        label, value = settings.spot_label
        nodes[label] = value
        tolerated.append({"key": label, "operator": "Exists", "effect": "NoSchedule"})
    found: Manifest = {"nodeSelector": nodes} if nodes else {}
    return {**found, "tolerations": tolerated}


def tolerations() -> list[Manifest]:
    """Return for how long a pod stays on a node that is not heard of."""
    about = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_S}
    return [{"key": f"node.kubernetes.io/{each}", **about} for each in ("not-ready", "unreachable")]


def _kind(kind: str, settings: ClusterSettings) -> dict[str, str]:
    """Return the labels of the nodes with one kind of accelerator."""
    if kind.lower() in ANY_KIND or (settings.nodes and not settings.topology):
        return {}
    if settings.topology:
        return {TPU_KIND: kind, TPU_TOPOLOGY: settings.topology}
    raise SettingsError(
        f"accelerators is {kind}, and settings.nodes does not tell by which label such nodes are "
        "known, as nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3; kubectl get nodes --show-labels "
        "shows theirs. Of TPUs on GKE, settings.topology does; and gpu:8 is eight of any kind"
    )


# --- JobSets ----------------------------------------------------------------------------------


def island_jobset(island: engine.Island, placed: Placed) -> Manifest:
    """Return a JobSet that is one island, which fails as its job does."""
    settings = ClusterSettings.of(island.needs.settings)
    about = _about(island)
    if settings.queue:
        about["labels"][QUEUE] = settings.queue
    if settings.namespace:
        about["namespace"] = settings.namespace
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": placed.jobset, **about},
        "spec": {
            "ttlSecondsAfterFinished": KEPT_S,
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [_replicated_job(island, placed)],
        },
    }


def jobset_name(words: Iterable[str], island: engine.Island, *, room: int = 0) -> str:
    """Return the name of a JobSet that is one island, short enough for the names of its pods."""
    text = "-".join([*words, island.name])
    return dns_label(text, NAME_MAX - len(f"-{HOSTS}") - POD_SUFFIX - room)
