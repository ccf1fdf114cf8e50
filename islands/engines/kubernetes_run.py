"""The manifests of a whole run on Kubernetes: its hub, and its islands as jobs of one JobSet.

=============  ====================================================================================
StatefulSet    the hub, of one pod, whose folder is a volume; `/readyz` and `/healthz` are asked
               inside of the pod, since they answer to whoever shows the token, and to loopback
Service        the name under which islands dial the hub, also before it is ready
ConfigMap      the run's file, and the layout that it names
NetworkPolicy  islands reach the hub's port and one another; nobody else reaches either
JobSet         the islands; those that wait in a queue of Kueue's are a JobSet each
=============  ====================================================================================

One JobSet restarts a failed island alone by its action RestartJob, an alpha feature of JobSet 0.12
that its administrator turns on. Without it, `apart`, each island is a JobSet of its own.

In one JobSet exit code 2 fails no job: JobSet could only end all islands with it, or restart this
one without a pause. So its pods are made again as after any failure, after 10 s to 6 min.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from islands.engines.engine import Island, RunMark
from islands.engines.hub import Joining, island_of
from islands.engines.kubernetes_manifests import (
    GRACE_S,
    HOSTS,
    NAME_MAX,
    POD_SUFFIX,
    USER,
    ClusterSettings,
    Manifest,
    Mark,
    Placed,
    dns_label,
    island_jobset,
    jobset,
    jobset_name,
    replicated_job,
    text_of,
    tolerations,
)
from islands.engines.needs import Needs
from islands.protocol.errors import SettingsError
from islands.protocol.settings.addresses import DEFAULT_PORT
from islands.settings.groups import DEFAULT_TASK

ENGINE = "kubernetes"
CONFIG, FILE = "/etc/islands", "run.yaml"
FOLDER, CACHE = "/var/lib/islands", "/var/cache/islands"
SECRETS, TOKEN = "/run/secrets/islands", "token"
READER = "volume"
WAIT_S = 86400
"""How long an island waits for the hub: its image may have to be pulled, and its volume made."""
RUN_MAX = 24
"""Most characters of a run's name in those of its objects; as many are left for an island's."""
OBJECT_BYTES_MAX = 1 << 20
"""Largest object that the API keeps, with room for what it adds to it (1.5 MiB)."""

AGAIN: Manifest = {"rules": [{"name": "again", "action": "RestartJobAndIgnoreMaxRestarts"}]}
APART: Manifest = {
    "rules": [
        {"name": "mistake", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
        {"name": "again", "action": "RestartJobSetAndIgnoreMaxRestarts"},
    ]
}
ASK = (
    "import urllib.request as r; "
    "r.build_opener(r.ProxyHandler({{}})).open('http://127.0.0.1:{port}{path}', timeout=5)"
)
SLEEP = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


@dataclass(frozen=True, slots=True)
class HubNeeds:
    """What the hub of a run is given.

    Args:
        run: the run's name.
        image: image with Islands, for the hub and for islands that name none.
        files: the run's file as run.yaml, and those that it names, by name.
        task: the run's task by name.
        namespace: where all of it is; empty for the namespace that kubectl has.
        cpus: cores of the hub.
        memory_gib: its memory.
        volume_gib: size of its volume.
    """

    run: str
    image: str
    files: Mapping[str, str]
    task: str = DEFAULT_TASK
    namespace: str = ""
    cpus: float = 2.0
    memory_gib: float = 8.0
    volume_gib: float = 50.0

    @property
    def name(self) -> str:
        """The name of the run's objects, short enough for those of its pods."""
        return dns_label(self.run, RUN_MAX)

    @property
    def hub(self) -> str:
        """The name of the hub, and the address at which it is dialled."""
        return f"{self.name}-hub"

    @property
    def secret(self) -> str:
        """The name of the Secret with the token."""
        return f"{self.name}-token"

    @property
    def mark(self) -> Mark:
        """The labels of the run."""
        return Mark(self.run)


def manifests(
    hub: HubNeeds, entries: Mapping[str, Needs], *, apart: bool = False
) -> list[Manifest]:
    """Return all manifests of a run, in the order in which they are applied.

    Args:
        hub: what the hub is given.
        entries: the entries of the table `islands` that Kubernetes places, by name.
        apart: whether each island is a JobSet of its own.

    Raises:
        SettingsError: an entry needs what its settings do not tell how to find.
    """
    found = [_config(hub), _service(hub), _stateful_set(hub), *_policies(hub)]
    together: list[Manifest] = []
    for name, needs in entries.items():
        try:
            one, jobsets = _entry(name, needs, hub, apart=apart)
        except SettingsError as error:
            raise SettingsError(f"islands.{name}: {error}") from error
        together += one
        found += jobsets
    if together:
        found.append(_one_jobset(hub, together))
    return found


def _entry(
    name: str, needs: Needs, hub: HubNeeds, *, apart: bool
) -> tuple[list[Manifest], list[Manifest]]:
    """Return an entry's islands as replicated jobs of the one JobSet, or as JobSets."""
    told = ClusterSettings.of(needs.settings)
    if told.namespace not in ("", hub.namespace):
        raise SettingsError(
            f"settings.namespace is {told.namespace}, and the hub is not there; both are where "
            "--namespace says"
        )
    islands = _islands(name, needs, hub)
    if apart or told.queue:
        places = [
            Placed(hub.mark, jobset_name((hub.name,), i), HOSTS, _secrets(hub)) for i in islands
        ]
        made = [island_jobset(*each, APART) for each in zip(islands, places, strict=True)]
        return [], [_in_namespace(each, hub) for each in made]
    jobs = [replicated_job(i, _place_in_one(hub, i), fails_by_mistake=False) for i in islands]
    return jobs, []


def _islands(entry: str, needs: Needs, hub: HubNeeds) -> list[Island]:
    """Return the islands of an entry, each with the command that joins it to the hub."""
    learner = needs.learner
    if needs.command is None:
        learner = {"wait_s": WAIT_S, **learner}
    needs = replace(needs, image=needs.image or hub.image, learner=learner)
    url = f"ws://{hub.hub}:{DEFAULT_PORT}/supervisor"
    joining = Joining(RunMark(hub.run, ""), url, task=hub.task)
    return [island_of(f"{entry}-{index}", needs, joining) for index in range(needs.count)]


def _secrets(hub: HubNeeds) -> dict[str, tuple[str, str]]:
    return {"ISLANDS_TOKEN": (hub.secret, TOKEN)}


def _place_in_one(hub: HubNeeds, island: Island) -> Placed:
    room = NAME_MAX - len(f"{hub.name}-") - POD_SUFFIX
    return Placed(hub.mark, hub.name, dns_label(island.name, room), _secrets(hub))


def _one_jobset(hub: HubNeeds, jobs: Sequence[Manifest]) -> Manifest:
    made = jobset(hub.name, jobs, {"labels": hub.mark.labels()}, AGAIN)
    if len(json.dumps(made)) > OBJECT_BYTES_MAX:
        raise SettingsError(
            f"{len(jobs)} islands are more than one JobSet holds (1 MiB); --apart makes one of each"
        )
    return _in_namespace(made, hub)


# --- the hub ----------------------------------------------------------------------------------


def _object(hub: HubNeeds, kind: str, version: str, name: str, **rest: object) -> Manifest:
    about = {"name": name, "labels": hub.mark.labels()}
    return _in_namespace({"apiVersion": version, "kind": kind, "metadata": about, **rest}, hub)


def _in_namespace(made: Manifest, hub: HubNeeds) -> Manifest:
    if hub.namespace:
        made["metadata"]["namespace"] = hub.namespace
    return made


def _config(hub: HubNeeds) -> Manifest:
    return _object(hub, "ConfigMap", "v1", f"{hub.name}-run", data=dict(hub.files))


def _service(hub: HubNeeds) -> Manifest:
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # learners wait for it, and dial it while it reads
        "selector": hub.mark.labels("hub"),
        "ports": [{"name": "hub", "port": DEFAULT_PORT}],
    }
    return _object(hub, "Service", "v1", hub.hub, spec=spec)


def _policies(hub: HubNeeds) -> list[Manifest]:
    """Return who may reach whom.

    Hosts of an island reach one another at all ports: their devices' collectives take any.
    """
    learners = [{"podSelector": {"matchLabels": hub.mark.labels("learner")}}]
    port = [{"protocol": "TCP", "port": DEFAULT_PORT}]
    return [
        _policy(hub, "hub", [{"from": learners, "ports": port}]),
        _policy(hub, "learner", [{"from": learners}]),
    ]


def _policy(hub: HubNeeds, role: str, ingress: list[Manifest]) -> Manifest:
    spec = {
        "podSelector": {"matchLabels": hub.mark.labels(role)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return _object(hub, "NetworkPolicy", "networking.k8s.io/v1", f"{hub.name}-{role}", spec=spec)


def _stateful_set(hub: HubNeeds) -> Manifest:
    claim = {
        "metadata": {"name": "folder", "labels": hub.mark.labels()},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": _mib(hub.volume_gib)}},
        },
    }
    spec = {
        "serviceName": hub.hub,
        "replicas": 1,
        "selector": {"matchLabels": hub.mark.labels("hub")},
        "template": {"metadata": {"labels": hub.mark.labels("hub")}, "spec": _hub_pod(hub)},
        "volumeClaimTemplates": [claim],
    }
    return _object(hub, "StatefulSet", "apps/v1", hub.hub, spec=spec)


def _hub_pod(hub: HubNeeds) -> Manifest:
    user = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    token = {"secretName": hub.secret, "defaultMode": 0o440}
    return {
        "terminationGracePeriodSeconds": GRACE_S,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": {**user, "seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": tolerations(),
        "containers": [_hub_container(hub), _reader(hub)],
        "volumes": [
            {"name": "run", "configMap": {"name": f"{hub.name}-run"}},
            {"name": "token", "secret": token},
            {"name": "cache", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _hub_container(hub: HubNeeds) -> Manifest:
    return {
        "name": "hub",
        "image": hub.image,
        "command": hub_command(hub),
        "ports": [{"name": "hub", "containerPort": DEFAULT_PORT}],
        # Reading a long journal, and importing what a hub needs, take their time.
        "startupProbe": {**_probe("/healthz"), "periodSeconds": 5, "failureThreshold": 120},
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 10},
        "livenessProbe": {**_probe("/healthz"), "periodSeconds": 30, "failureThreshold": 4},
        "resources": {
            "requests": {"cpu": f"{hub.cpus:g}", "memory": _mib(hub.memory_gib)},
            "limits": {"memory": _mib(hub.memory_gib)},
        },
        "securityContext": _hardened(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "run", "mountPath": CONFIG, "readOnly": True},
            {"name": "token", "mountPath": SECRETS, "readOnly": True},
            {"name": "folder", "mountPath": FOLDER},
            {"name": "cache", "mountPath": CACHE},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  (of the container)
        ],
    }


def hub_command(hub: HubNeeds) -> list[str]:
    """Return the command of a run's hub, as its container has it."""
    words = {
        "config": f"{CONFIG}/{FILE}",
        "listen": f"0.0.0.0:{DEFAULT_PORT}",
        "advertise": f"{hub.hub}:{DEFAULT_PORT}",
        "folder": f"{FOLDER}/run",
        "token_file": f"{SECRETS}/{TOKEN}",
    }
    layout = next((name for name in hub.files if name != FILE), None)
    if layout is not None:
        words["layout"] = f"{CONFIG}/{layout}"
    return ["python", "-m", "islands.syncer", *(f"--{key}={value}" for key, value in words.items())]


def _reader(hub: HubNeeds) -> Manifest:
    """Return the container through which the hub's volume is read, also after the run's end."""
    return {
        "name": READER,
        "image": hub.image,
        "command": ["/bin/sh", "-c", SLEEP],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": _hardened(),
        "volumeMounts": [{"name": "folder", "mountPath": FOLDER}],
    }


def _probe(path: str) -> Manifest:
    ask = ASK.format(port=DEFAULT_PORT, path=path)
    return {"exec": {"command": ["python", "-c", ask]}, "timeoutSeconds": 10}


def _hardened() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _mib(gib: float) -> str:
    return f"{round(gib * 1024)}Mi"


# --- text -------------------------------------------------------------------------------------


def written(hub: HubNeeds, made: Sequence[Manifest]) -> str:
    """Return manifests as one YAML text, which begins with what else the cluster needs."""
    where = f" --namespace {hub.namespace}" if hub.namespace else ""
    jobsets = [each for each in made if each["kind"] == "JobSet"]
    alone = any(each["spec"]["failurePolicy"] is AGAIN for each in jobsets)
    head = [
        f"The run {hub.run} on Kubernetes. Its token is a Secret that is made once:",
        "",
        "    (umask 077 && python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > token)",
        f"    kubectl{where} create secret generic {hub.secret} --from-file={TOKEN}=token",
        "",
        "The cluster needs JobSet 0.12"
        + (" with its feature gate RestartJob turned on (or: --apart)." if alone else "."),
    ]
    lines = "".join(f"# {line}".rstrip() + "\n" for line in head)
    return lines + "".join(f"---\n{text_of(each)}" for each in made)
