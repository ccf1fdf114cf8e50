"""What Kubernetes is given: valid by its schemas and JobSet's, and what stands in it."""

import copy
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pytest
import yaml

from islands.cli.__main__ import main
from islands.cli.parsing import parse
from islands.engines.engine import ADDRESS, RANK, Island, RunMark, Unplaceable
from islands.engines.kubernetes import Kubernetes
from islands.engines.kubernetes_manifests import (
    SPOT,
    ClusterSettings,
    Manifest,
    Mark,
    Placed,
    dns_label,
    island_jobset,
    jobset_name,
    literal,
)
from islands.engines.kubernetes_run import HubNeeds, manifests, written
from islands.engines.needs import Needs, read_islands
from islands.protocol.errors import SettingsError
from islands.settings.host import LearnerOptions, SyncerOptions
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
TABLES: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "one island on CPUs": {"site": {"engine": "kubernetes"}},
    "GPUs of several hosts, by Kueue, on spot nodes": {"site": GPUS},
    "TPUs, a loop of one's own, an image, a region": {"tpus": TPUS},
    "several entries": {"site": {"engine": "kubernetes", "count": 2}, "far": GPUS, "tpus": TPUS},
}
HUB = HubNeeds(run="first", image="example/islands:1", files={"run.yaml": "task: a:b\nrun: {}\n"})


def made(table: str, *, apart: bool = False) -> list[Manifest]:
    """All manifests of a run with these islands, as kubectl reads them."""
    entries = read_islands(TABLES[table])
    text = written(HUB, manifests(HUB, entries, apart=apart))
    return list(yaml.safe_load_all(text))


def island(**needs: object) -> Island:
    """An island with a token."""
    told = {"engine": "kubernetes", "image": "example/islands:1", **needs}
    (entry,) = read_islands({"site": told}).values()
    return Island("site-0", OF, entry, "python -m islands.learner", {"ISLANDS_TOKEN": "hush"})


def of_kind(found: Sequence[Manifest], kind: str) -> list[Manifest]:
    """The objects of one kind."""
    return [each for each in found if each["kind"] == kind]


def pod_of(job: Mapping[str, Any]) -> Manifest:
    """The pod of a replicated job."""
    pod: Manifest = job["template"]["spec"]["template"]["spec"]
    return pod


Options = TypeVar("Options")


def understood(options: type[Options], words: list[str], role: str) -> Options:
    """What a role makes of a command, whose one file of settings is empty here."""
    assert words[:3] == ["python", "-m", role]
    here = [word.replace("/etc/islands/run.yaml", os.devnull) for word in words[3:]]
    return parse(options, here, program=f"python -m {role}", description="")[0]


# --- validity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
@pytest.mark.parametrize("table", TABLES)
def test_manifests_are_valid(table: str, *, apart: bool) -> None:
    """Of every setting, by the schemas of Kubernetes and of JobSet, without an unknown field."""
    found = made(table, apart=apart)
    assert [each["kind"] for each in found if each["kind"] != "JobSet"] == [
        *("ConfigMap", "Service", "StatefulSet", "NetworkPolicy", "NetworkPolicy")
    ]
    assert [fault for each in found for fault in faults(each)] == []


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("spec.replicatedJob", [], "JobSet.spec has no field replicatedJob"),
        ("spec.replicatedJobs.0.template.spec.backofLimit", 3, "no field backofLimit"),
        ("spec.replicatedJobs.0.template.spec.backoffLimit", "3", "must be integer"),
        ("spec.failurePolicy.rules.0.action", "RestartIsland", "must be one of"),
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
    """A misspelt field, another type, a value that is not among those allowed."""
    jobset = copy.deepcopy(of_kind(made("one island on CPUs"), "JobSet")[0])
    *places, last = [int(each) if each.isdecimal() else each for each in path.split(".")]
    inner: Any = jobset
    for place in places:
        inner = inner[place]
    inner[last] = value
    assert any(says in fault for fault in faults(jobset)), faults(jobset)


# --- islands ------------------------------------------------------------------------------------


def test_hosts_are_the_pods_of_one_job_and_find_rank_0() -> None:
    """As many pods as hosts, ranks by their index; rank 0 has the name that JobSet gives it."""
    (jobset,) = of_kind(made("TPUs, a loop of one's own, an image, a region"), "JobSet")
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


def test_the_commands_are_those_of_a_hub_and_of_a_learner() -> None:
    """With options that exist, files that are mounted, and addresses that belong together."""
    found = made("GPUs of several hosts, by Kueue, on spot nodes")
    (hub,) = of_kind(found, "StatefulSet")
    container = hub["spec"]["template"]["spec"]["containers"][0]
    told = understood(SyncerOptions, container["command"], "islands.syncer")
    assert told.listening.advertise == "first-hub:7070"
    places = [each["mountPath"] for each in container["volumeMounts"]]
    for path in (told.folder, told.connecting.token_file):
        assert any(str(path).startswith(f"{place}/") for place in places)
    jobset = of_kind(found, "JobSet")[1]
    (script,) = pod_of(jobset["spec"]["replicatedJobs"][0])["containers"][0]["args"]
    line = script.replace(f"${RANK}", "3").replace(f"${ADDRESS}", "a-0-0.a").split("exec ")[1]
    learner = understood(LearnerOptions, shlex.split(line), "islands.learner")
    assert (learner.name, learner.hosts, learner.rank) == ("site-1", 4, 3)
    assert learner.supervisor_urls == ("ws://first-hub:7070/supervisor",)
    assert learner.island_address == "a-0-0.a:7200"


def test_needs_are_resources_and_labels_of_nodes() -> None:
    """Accelerators by number and kind, region, spot, and the taints that such nodes have."""
    table = made("GPUs of several hosts, by Kueue, on spot nodes")
    first, second = of_kind(table, "JobSet")
    pod = pod_of(first["spec"]["replicatedJobs"][0])
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
    assert {
        each["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for each in (first, second)
    } == {"training"}


def test_tpus_are_found_by_their_kind_and_topology() -> None:
    """As GKE labels its nodes."""
    (jobset,) = of_kind(made("TPUs, a loop of one's own, an image, a region"), "JobSet")
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
    """A kind of accelerator or of node without a label, and settings that do not exist."""
    with pytest.raises(SettingsError, match=re.escape(says)):
        island_jobset(island(**needs), Placed(Mark("first"), "first"))


@pytest.mark.parametrize("spot", [*SPOT, "my.org/spot=yes"])
def test_spot_nodes_are_named_by_who_makes_them_or_by_label(spot: str) -> None:
    """And their taint of the same name is tolerated."""
    label = ClusterSettings.of({"spot": spot}).spot_label
    assert label is not None
    made = island_jobset(
        island(preemptible=True, settings={"spot": spot}), Placed(Mark("first"), "first")
    )
    pod = pod_of(made["spec"]["replicatedJobs"][0])
    assert pod["nodeSelector"] == dict([label])
    assert pod["tolerations"][-1]["key"] == label[0]


def test_any_accelerator_needs_no_label() -> None:
    """gpu:2 are two of whichever kind; a resource of another maker's is named."""
    placed = Placed(Mark("first"), "first")
    told = {"resource": "amd.com/gpu"}
    jobset = island_jobset(island(accelerators="gpu:2", settings=told), placed)
    pod = pod_of(jobset["spec"]["replicatedJobs"][0])
    assert "nodeSelector" not in pod
    assert pod["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "2"}


# --- failures -----------------------------------------------------------------------------------


def policy(jobset: Manifest) -> list[str]:
    """The actions of a job's policy for failed pods."""
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    return [rule["action"] for rule in spec["podFailurePolicy"]["rules"]]


def test_an_island_that_fails_ends_no_other() -> None:
    """In one JobSet its job alone is made again; of its own, exit code 2 ends it."""
    (together,) = of_kind(made("one island on CPUs"), "JobSet")
    assert together["spec"]["failurePolicy"]["rules"] == [
        {"name": "again", "action": "RestartJobAndIgnoreMaxRestarts"}
    ]
    assert policy(together) == ["Ignore"]
    (apart,) = of_kind(made("one island on CPUs", apart=True), "JobSet")
    assert policy(apart) == ["FailJob", "Ignore"]
    assert [rule["action"] for rule in apart["spec"]["failurePolicy"]["rules"]] == [
        "FailJobSet",
        "RestartJobSetAndIgnoreMaxRestarts",
    ]


def test_an_island_that_waits_in_a_queue_is_a_jobset_of_its_own() -> None:
    """Kueue admits a JobSet as a whole, and no island waits for another."""
    found = of_kind(made("several entries"), "JobSet")
    names = [[job["name"] for job in each["spec"]["replicatedJobs"]] for each in found]
    assert names == [["hosts"], ["hosts"], ["site-0", "site-1", "tpus-0"]]


def test_more_islands_than_one_object_holds_are_refused() -> None:
    """With what to do instead."""
    entries = {"site": Needs(engine="kubernetes", count=1000)}
    with pytest.raises(SettingsError, match=r"1000 islands are more than one JobSet.*--apart"):
        manifests(HUB, entries)
    assert len(of_kind(manifests(HUB, entries, apart=True), "JobSet")) == 1000


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("first", "first"),
        ("First", "first-" + dns_label("First")[-6:]),
        ("7b_run", "i-7b-run-" + dns_label("7b_run")[-6:]),
        ("a" * 64, "a" * 56 + "-" + dns_label("a" * 64)[-6:]),
    ],
)
def test_a_name_of_kubernetes_begins_with_a_letter_and_is_short(text: str, name: str) -> None:
    """What is lost of a name is told apart by six digits of its hash."""
    assert dns_label(text) == name
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name)


def test_names_that_become_equal_are_told_apart() -> None:
    """Two runs whose names differ in what Kubernetes does not allow."""
    assert dns_label("a.b") != dns_label("a_b")


@pytest.mark.parametrize("run", ["first", "R" * 64])
@pytest.mark.parametrize("apart", [False, True])
def test_the_longest_pod_name_is_allowed(run: str, *, apart: bool) -> None:
    """JobSet refuses a JobSet whose pods would have names of more than 63 characters."""
    hub = HubNeeds(run=run, image="i", files={})
    entries = {"e" * 60: Needs(engine="kubernetes", hosts=9999)}
    for jobset in of_kind(manifests(hub, entries, apart=apart), "JobSet"):
        (job,) = jobset["spec"]["replicatedJobs"]
        assert len(f"{jobset['metadata']['name']}-{job['name']}-0-9999-abcde") <= 63


def test_text_for_a_shell_is_not_expanded_by_kubernetes() -> None:
    """Kubernetes replaces $(NAME) in commands and makes $ of $$, before a shell sees either."""
    assert literal("echo $(date) $$ $HOME") == "echo $$(date) $$$ $HOME"


# --- the engine's description -------------------------------------------------------------------


def test_the_description_is_the_manifest_without_secrets() -> None:
    """It asks nobody, and tells where the token will be."""
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
    assert jobset_name(("islands", "first"), island()) == told["metadata"]["name"]


def test_what_the_engine_cannot_be_told_is_unplaceable() -> None:
    """With the island's name."""
    with pytest.raises(Unplaceable, match="site-0: image is not set"):
        Kubernetes(OF, {}).describe(island(image=None))


def test_without_the_official_client_an_island_is_unplaceable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what to install; what would be given is described all the same."""
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    engine = Kubernetes(OF, {})
    with pytest.raises(Unplaceable, match=r"pip install 'islands\[kubernetes\]'"):
        engine.place(island())
    assert "kind: JobSet" in engine.describe(island())


# --- the hub ------------------------------------------------------------------------------------


def test_nobody_but_islands_of_the_run_reaches_the_hub() -> None:
    """Its port is open to pods with the labels of a learner of this run, and to none else."""
    found = made("one island on CPUs")
    hub, learner = of_kind(found, "NetworkPolicy")
    ours = {"islands-run": "first", "islands-role": "learner"}
    assert hub["spec"]["podSelector"] == {
        "matchLabels": {"islands-run": "first", "islands-role": "hub"}
    }
    assert hub["spec"]["ingress"] == [
        {
            "from": [{"podSelector": {"matchLabels": ours}}],
            "ports": [{"protocol": "TCP", "port": 7070}],
        }
    ]
    assert learner["spec"]["ingress"] == [{"from": [{"podSelector": {"matchLabels": ours}}]}]
    (jobset,) = of_kind(found, "JobSet")
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["labels"].items() >= ours.items()


def test_the_hub_keeps_its_folder_and_is_found_before_it_is_ready() -> None:
    """Learners dial it while it reads its journal; the folder outlives its pod."""
    found = made("one island on CPUs")
    (service,), (hub,) = of_kind(found, "Service"), of_kind(found, "StatefulSet")
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"] == hub["spec"]["selector"]["matchLabels"]
    assert service["metadata"]["name"] == hub["spec"]["serviceName"]
    claims = [claim["metadata"]["name"] for claim in hub["spec"]["volumeClaimTemplates"]]
    for container in hub["spec"]["template"]["spec"]["containers"]:
        folders = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert folders["/var/lib/islands"] in claims
        assert container["securityContext"]["readOnlyRootFilesystem"]


# --- the command --------------------------------------------------------------------------------


def test_the_command_writes_a_run(
    tmp_path: Any,  # noqa: ANN401
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Valid, with the run's file inside, a layout beside it, and no islands of other engines."""
    (tmp_path / "model.json").write_text("{}")
    file = tmp_path / "run.yaml"
    text = (
        f"layout: {tmp_path / 'model.json'}\nrun: {{run: mine}}\nislands:\n"
        "  tpus: {engine: kubernetes, command: python -m mine, hosts: 2}\n  site: {engine: slurm}\n"
    )
    file.write_text(text)
    assert main(["deploy", "kubernetes", str(file), "--namespace", "training"]) == 0
    out, err = capsys.readouterr()
    assert "site (slurm)" in err
    found = list(yaml.safe_load_all(out))
    assert [fault for each in found for fault in faults(each)] == []
    assert {each["metadata"]["namespace"] for each in found} == {"training"}
    (config,) = of_kind(found, "ConfigMap")
    assert config["data"]["run.yaml"] == text
    assert "--namespace training create secret generic mine-token" in out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("run: {run: mine}\n", "has no entry of islands whose engine is kubernetes"),
        (
            "islands: {site: {engine: slurm}}\n",
            "has no entry of islands whose engine is kubernetes",
        ),
        ("islands: [site]\n", "islands is ['site']; it must be a table of entries"),
        ("islands: {site: {engine: kubernetes, hostz: 2}}\n", "hostz is not known"),
        (
            "islands: {site: {engine: kubernetes, preemptible: true}}\n",
            "islands.site: preemptible is set and settings.spot is not",
        ),
        (
            "islands: {site: {engine: kubernetes, settings: {namespace: far}}}\n",
            "islands.site: settings.namespace is far, and the hub is not there",
        ),
        (
            "start_from: a.safetensors\nislands: {site: {engine: kubernetes}}\n",
            "start_from is a.safetensors; in the image it is another folder",
        ),
    ],
)
def test_a_file_without_islands_for_kubernetes_is_refused(
    text: str,
    says: str,
    tmp_path: Any,  # noqa: ANN401
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By one sentence, with exit code 2."""
    (tmp_path / "run.yaml").write_text(text)
    assert main(["deploy", "kubernetes", str(tmp_path / "run.yaml")]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
