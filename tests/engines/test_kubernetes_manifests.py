"""What Kubernetes is given: valid by its schemas and JobSet's, and what stands in it."""

import re
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from islands.cli.parsing import parse
from islands.engines import kubernetes_manifests
from islands.engines.engine import ADDRESS, RANK, Island, RunMark, Unplaceable, yaml_of
from islands.engines.hub import Joining, island_of
from islands.engines.kubernetes import Kubernetes
from islands.engines.needs import read_islands
from islands.protocol.errors import SettingsError
from islands.settings.host import LearnerOptions
from tests.engines.schema import faults

OF = RunMark("first", "0a1b2c3d")
GPUS = {
    "engine": "kubernetes",
    "count": 2,
    "hosts": 4,
    "accelerators": "H100:8",
    "cpus": 96,
    "memory_gib": 512,
    "preemptible": True,
    "region": "europe-west4",
    "settings": {
        "queue": "training",
        "spot": "gke",
        "nodes": "cloud.google.com/gke-accelerator=nvidia-h100-80gb",
    },
}
TPUS = {
    "engine": "kubernetes",
    "hosts": 2,
    "accelerators": "tpu-v5-lite-podslice:4",
    "region": "us-west4",
    "command": "python -m my.loop",
    "image": "example/own:1",
    "env": {"PRICE": "$(cat price)"},
    "setup": ["source /opt/venv/bin/activate"],
    "settings": {"topology": "2x4"},
}
ISLANDS: Mapping[str, Mapping[str, object]] = {
    "on CPUs": {"engine": "kubernetes"},
    "GPUs of several hosts, by Kueue, on spot nodes": GPUS,
    "TPUs, a loop of one's own, an image, a region": TPUS,
}
PLACED = kubernetes_manifests.Placed("first-site-0", {"ISLANDS_TOKEN": ("first-site-0", "token")})


def made(entry: str) -> kubernetes_manifests.Manifest:
    """The JobSet of an entry's island, as kubectl reads it."""
    (needs,) = read_islands({"site": {"image": "example/islands:1", **ISLANDS[entry]}}).values()
    joining = Joining(OF, "ws://first-hub:7070/supervisor", "hush", task="a:b")
    text = yaml_of(kubernetes_manifests.island_jobset(island_of("site-1", needs, joining), PLACED))
    found: kubernetes_manifests.Manifest = yaml.safe_load(text)
    return found


def island(**needs: object) -> Island:
    told = {"engine": "kubernetes", "image": "example/islands:1", **needs}
    (entry,) = read_islands({"site": told}).values()
    return Island("site-0", OF, entry, "python -m islands.learner", {"ISLANDS_TOKEN": "hush"})


def pod_of(job: Mapping[str, Any]) -> kubernetes_manifests.Manifest:
    pod: kubernetes_manifests.Manifest = job["template"]["spec"]["template"]["spec"]
    return pod


# --- validity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ISLANDS)
def test_manifests_are_valid(entry: str) -> None:
    assert faults(made(entry)) == []


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("spec.replicatedJob", [], "JobSet.spec has no field replicatedJob"),
        ("spec.replicatedJobs.0.template.spec.backofLimit", 3, "no field backofLimit"),
        ("spec.replicatedJobs.0.template.spec.backoffLimit", "3", "must be integer"),
        ("spec.failurePolicy.rules", [{"name": "again", "action": "Restart"}], "must be one of"),
        ("spec.replicatedJobs.0.name", None, "it must be string"),
        ("apiVersion", "jobset.x-k8s.io/v1", "there is no JobSet in"),
        (
            "spec.replicatedJobs.0.template.spec.template.spec.containers.0.resources",
            {"limits": {"memory": True}},
            "fits 0 of",
        ),
    ],
)
def test_what_is_wrong_in_a_manifest_is_seen(path: str, value: object, says: str) -> None:
    jobset = made("on CPUs")
    *places, last = [int(each) if each.isdecimal() else each for each in path.split(".")]
    inner: Any = jobset
    for place in places:
        inner = inner[place]
    inner[last] = value
    assert any(says in fault for fault in faults(jobset)), faults(jobset)


# --- islands ------------------------------------------------------------------------------------


def test_hosts_are_the_pods_of_one_job_and_find_rank_0() -> None:
    jobset = made("TPUs, a loop of one's own, an image, a region")
    (job,) = jobset["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    assert (spec["completionMode"], spec["parallelism"], spec["completions"]) == ("Indexed", 2, 2)
    (container,) = pod_of(job)["containers"]
    told = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    assert told[RANK] == {
        "fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}
    }
    name = jobset["metadata"]["name"]
    assert told[ADDRESS] == f"{name}-{job['name']}-0-0.{name}"
    assert [port["containerPort"] for port in container["ports"]] == [7200, 7201]
    assert container["image"] == "example/own:1"
    assert container["args"] == ["source /opt/venv/bin/activate\nexec sh -c 'python -m my.loop'\n"]
    assert told["PRICE"] == "$$(cat price)"  # Kubernetes makes one of the two


def test_the_command_is_that_of_a_learner() -> None:
    jobset = made("GPUs of several hosts, by Kueue, on spot nodes")
    (script,) = pod_of(jobset["spec"]["replicatedJobs"][0])["containers"][0]["args"]
    line = script.replace(f"${RANK}", "3").replace(f"${ADDRESS}", "a-0-0.a").split("exec ")[1]
    words = shlex.split(line)
    assert words[:3] == ["python", "-m", "islands.learner"]
    learner = parse(LearnerOptions, words[3:], program="python -m islands.learner", description="")
    assert (learner[0].name, learner[0].hosts, learner[0].rank) == ("site-1", 4, 3)
    assert learner[0].supervisor_urls == ("ws://first-hub:7070/supervisor",)
    assert learner[0].island_address == "a-0-0.a:7200"


def test_needs_are_resources_and_labels_of_nodes() -> None:
    jobset = made("GPUs of several hosts, by Kueue, on spot nodes")
    pod = pod_of(jobset["spec"]["replicatedJobs"][0])
    assert pod["containers"][0]["resources"] == {
        "requests": {"cpu": "96", "memory": "524288Mi", "nvidia.com/gpu": "8"},
        "limits": {"memory": "524288Mi", "nvidia.com/gpu": "8"},
    }
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
        "topology.kubernetes.io/region": "europe-west4",
        "cloud.google.com/gke-spot": "true",
    }
    away = {each["key"]: each.get("tolerationSeconds") for each in pod["tolerations"]}
    assert away == {
        "node.kubernetes.io/not-ready": 30,
        "node.kubernetes.io/unreachable": 30,
        "nvidia.com/gpu": None,
        "cloud.google.com/gke-spot": None,
    }
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"


def test_tpus_are_found_by_their_kind_and_topology() -> None:
    jobset = made("TPUs, a loop of one's own, an image, a region")
    pod = pod_of(jobset["spec"]["replicatedJobs"][0])
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}
    assert pod["nodeSelector"] == {
        "topology.kubernetes.io/region": "us-west4",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }


@pytest.mark.parametrize(
    ("needs", "says"),
    [
        ({"image": None}, "image is not set; kubernetes runs containers"),
        ({"accelerators": "H100:8"}, "accelerators is H100, and settings.nodes does not tell"),
        ({"preemptible": True}, "preemptible is set and settings.spot is not"),
        ({"settings": {"zone": "a"}}, "settings.zone is not known to kubernetes; it may have"),
        ({"settings": {"nodes": "gpu"}}, "settings.nodes is 'gpu'; it must be label=value"),
        ({"settings": {"spot": "gcp"}}, "settings.spot is 'gcp'; it must be one of gke, eks"),
    ],
)
def test_what_cannot_be_found_is_refused(needs: dict[str, object], says: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(says)):
        kubernetes_manifests.island_jobset(island(**needs), PLACED)


@pytest.mark.parametrize("spot", [*kubernetes_manifests.SPOT, "my.org/spot=yes"])
def test_spot_nodes_are_named_by_who_makes_them_or_by_label(spot: str) -> None:
    label = kubernetes_manifests.ClusterSettings.of({"spot": spot}).spot_label
    assert label is not None
    made = kubernetes_manifests.island_jobset(
        island(preemptible=True, settings={"spot": spot}), PLACED
    )
    pod = pod_of(made["spec"]["replicatedJobs"][0])
    assert pod["nodeSelector"] == dict([label])
    assert pod["tolerations"][-1]["key"] == label[0]


def test_any_accelerator_needs_no_label() -> None:
    placed = PLACED
    told = {"resource": "amd.com/gpu"}
    jobset = kubernetes_manifests.island_jobset(island(accelerators="gpu:2", settings=told), placed)
    pod = pod_of(jobset["spec"]["replicatedJobs"][0])
    assert "nodeSelector" not in pod
    assert pod["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "2"}


# --- failures -----------------------------------------------------------------------------------


def test_a_mistake_fails_an_island_at_once_and_a_lost_node_does_not() -> None:
    spec = made("on CPUs")["spec"]
    assert spec["failurePolicy"] == {"maxRestarts": 0}
    rules = spec["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in rules] == ["FailJob", "Ignore"]


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("first", "first"),
        ("First", "first-" + kubernetes_manifests.dns_label("First")[-6:]),
        ("7b_run", "i-7b-run-" + kubernetes_manifests.dns_label("7b_run")[-6:]),
        ("a" * 64, "a" * 56 + "-" + kubernetes_manifests.dns_label("a" * 64)[-6:]),
    ],
)
def test_a_name_of_kubernetes_begins_with_a_letter_and_is_short(text: str, name: str) -> None:
    assert kubernetes_manifests.dns_label(text) == name
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name)


def test_names_that_become_equal_are_told_apart() -> None:
    assert kubernetes_manifests.dns_label("a.b") != kubernetes_manifests.dns_label("a_b")


@pytest.mark.parametrize("run", ["first", "R" * 64])
def test_the_longest_pod_name_is_allowed(run: str) -> None:
    """JobSet refuses a JobSet whose pods would have names of more than 63 characters."""
    (needs,) = read_islands({"e" * 60: {"engine": "kubernetes", "hosts": 9999}}).values()
    told = island_of(f"{'e' * 60}-0", needs, Joining(OF, "ws://first-hub:7070/supervisor"))
    name = kubernetes_manifests.jobset_name(("islands", run), told)
    assert len(f"{name}-hosts-0-9999-abcde") <= 63


def test_text_for_a_shell_is_not_expanded_by_kubernetes() -> None:
    assert kubernetes_manifests.literal("echo $(date) $$ $HOME") == "echo $$(date) $$$ $HOME"


# --- the engine's description -------------------------------------------------------------------


def test_the_description_is_the_manifest_without_secrets() -> None:
    text = Kubernetes(OF, {}).describe(island(settings={"namespace": "training"}))
    told = yaml.safe_load(text)
    assert faults(told) == []
    assert told["metadata"]["namespace"] == "training"
    assert "hush" not in text
    (secret,) = [
        each["valueFrom"]["secretKeyRef"]
        for each in pod_of(told["spec"]["replicatedJobs"][0])["containers"][0]["env"]
        if each["name"] == "ISLANDS_TOKEN"
    ]
    assert secret == {"name": told["metadata"]["name"], "key": "ISLANDS_TOKEN"}
    name, _, attempt = told["metadata"]["name"].rpartition("-")
    assert (name, len(attempt)) == (
        kubernetes_manifests.jobset_name(("islands", "first"), island()),
        5,
    )


def test_what_the_engine_cannot_be_told_is_unplaceable() -> None:
    with pytest.raises(Unplaceable, match="site-0: image is not set"):
        Kubernetes(OF, {}).describe(island(image=None))


def test_without_kubectl_an_island_is_unplaceable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be given is described all the same."""
    monkeypatch.setenv("PATH", "/nowhere")
    engine = Kubernetes(OF, {})
    with pytest.raises(Unplaceable, match="the engine kubernetes needs the command kubectl"):
        engine.place(island())
    assert "kind: JobSet" in engine.describe(island())


@pytest.mark.parametrize("drained", [True, False])
def test_a_pod_whose_node_is_drained_is_not_complete(*, drained: bool) -> None:
    (job,) = made("on CPUs")["spec"]["replicatedJobs"]
    waits = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    script = waits if drained else "echo ready; exit 2"
    words = [*pod_of(job)["containers"][0]["command"], script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as pod:
        assert pod.stdout is not None
        assert pod.stdout.readline() == "ready\n"
        if drained:
            pod.terminate()
        assert pod.wait(20) == (143 if drained else 2)
