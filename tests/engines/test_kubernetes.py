"""The engine Kubernetes, through a real kubectl, against a small API server on loopback."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest

from islands.engines import engine as engines
from islands.engines.kubernetes import Kubernetes
from islands.engines.needs import Needs
from islands.protocol.errors import SettingsError
from tests.engines.kubernetes_api import KubernetesApi, served

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(which("kubectl") is None, reason="this host has no kubectl"),
]

OF = engines.RunMark("first", "0a1b2c3d")
ISLAND = engines.Island(
    "site-0",
    OF,
    Needs(engine="kubernetes", hosts=2, image="example/islands:1"),
    "python -m islands.learner",
    {"ISLANDS_TOKEN": "hush"},
)


@pytest.fixture
def api() -> KubernetesApi:
    return KubernetesApi()


@pytest.fixture
def kubeconfig(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with served(api, tmp_path) as file:
        yield file


@pytest.fixture
def engine(kubeconfig: Path) -> Kubernetes:
    return Kubernetes(OF, {"kubeconfig": str(kubeconfig)})


def test_an_island_is_placed_listed_and_ended(api: KubernetesApi, engine: Kubernetes) -> None:
    job = engine.place(ISLAND)
    assert job.startswith("islands-first-site-0-")
    (secret,) = api.objects["secrets"].values()
    assert secret["stringData"] == {"ISLANDS_TOKEN": "hush"}
    (found,) = engine.list()
    assert (found.name, found.job, found.state) == ("site-0", job, engines.JobState.WAITING)
    for index in (0, 1):
        api.add_pod(job, index, "Running")
    (found,) = engine.list()
    assert (found.state, found.where) == (engines.JobState.RUNNING, "node-0 node-1")
    engine.end(job, at_once=False)
    (found,) = engine.list()
    assert found.state is engines.JobState.ENDING
    api.end_pods(job)
    assert engine.list() == []
    assert not any(api.objects.values())


def test_an_attempt_that_is_made_again_is_the_same_job(
    api: KubernetesApi, engine: Kubernetes
) -> None:
    """And its Secret is there then, though the hub was killed before it was made."""
    job = engine.place(ISLAND)
    api.objects["secrets"].clear()
    assert engine.place(ISLAND) == job
    assert len(api.objects["jobsets"]) == len(api.objects["secrets"]) == 1
    assert engine.place(replace(ISLAND, attempt=2)) != job


def test_an_end_at_once_takes_the_pods_away(api: KubernetesApi, engine: Kubernetes) -> None:
    job = engine.place(ISLAND)
    api.add_pod(job, 0, "Running")
    engine.end(job, at_once=True)
    assert engine.list() == []
    (deleted,) = [
        query for method, kind, query in api.asked if (method, kind) == ("DELETE", "pods")
    ]
    assert deleted["gracePeriodSeconds"] == "0"


def test_a_job_that_is_gone_is_ended_without_a_word(engine: Kubernetes) -> None:
    engine.end("islands-first-site-0-abcde", at_once=True)


def test_another_beginning_of_the_run_sees_none_of_it(engine: Kubernetes, kubeconfig: Path) -> None:
    engine.place(ISLAND)
    other = Kubernetes(replace(OF, mark="ffffffff"), {"kubeconfig": str(kubeconfig)})
    assert other.list() == []


def test_a_list_takes_a_few_calls_however_many_islands_there_are(
    api: KubernetesApi, engine: Kubernetes
) -> None:
    for index in range(7):
        engine.place(replace(ISLAND, name=f"site-{index}"))
    api.asked.clear()
    api.page = 3
    assert sorted(job.name for job in engine.list()) == [f"site-{index}" for index in range(7)]
    assert [kind for _, kind, _ in api.asked] == ["jobsets"] * 3 + ["pods"] + ["events"]


def test_an_exceeded_quota_is_told_in_its_own_words(api: KubernetesApi, engine: Kubernetes) -> None:
    said = "jobsets is forbidden: exceeded quota: gpus, requested: 8, limited: 4"
    api.refuses["jobsets"] = 403, said
    with pytest.raises(engines.EngineAway, match="exceeded quota: gpus, requested: 8"):
        engine.place(ISLAND)
    del api.refuses["jobsets"]
    job = engine.place(ISLAND)
    api.objects["events"]["a"] = {
        "metadata": {"name": "a"},
        "reason": "FailedCreate",
        "involvedObject": {"name": f"{job}-hosts-0"},
        "message": "pods is forbidden: exceeded quota: gpus",
    }
    (found,) = engine.list()
    assert found.why == "pods is forbidden: exceeded quota: gpus"


def test_an_island_without_its_secret_is_taken_back(api: KubernetesApi, engine: Kubernetes) -> None:
    """Its pods would wait for it for ever."""
    api.refuses["secrets"] = 403, 'User "hub" cannot create resource "secrets"'
    with pytest.raises(engines.Unplaceable, match="cannot create resource"):
        engine.place(ISLAND)
    assert engine.list() == []


def test_a_cluster_that_is_gone_is_asked_again_later(tmp_path: Path) -> None:
    with served(KubernetesApi(), tmp_path) as file:
        engine = Kubernetes(OF, {"kubeconfig": str(file)})
    for call in (engine.list, lambda: engine.place(ISLAND)):
        with pytest.raises(engines.EngineAway, match=r"kubernetes does not answer: .*refused"):
            call()


def test_a_cluster_that_nobody_tells_of_is_the_users_to_mend(tmp_path: Path) -> None:
    engine = engines.make_engine("kubernetes", OF, {"kubeconfig": str(tmp_path / "none")})
    with pytest.raises(
        engines.Unplaceable, match=r"no cluster is named: current-context must exist .*; set"
    ):
        engine.list()
    with pytest.raises(SettingsError, match=r"settings\.cluster is not known to kubernetes"):
        engines.make_engine("kubernetes", OF, {"cluster": "far"})


def test_a_kubeconfig_of_the_environment_is_used_in_a_pod_too(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"KUBECONFIG": str(kubeconfig), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    for name, value in {**told, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    assert Kubernetes(OF, {}).list() == []


def test_a_cluster_without_jobset_says_what_to_install(
    api: KubernetesApi, engine: Kubernetes
) -> None:
    api.refuses["jobsets"] = 404, "the server could not find the requested resource"
    with pytest.raises(engines.Unplaceable, match="JobSet is not installed there; its administ"):
        engine.place(ISLAND)
