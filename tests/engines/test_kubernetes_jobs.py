"""What Kubernetes says of an island: its state, its hosts, why it waits, how it ended.

The objects are those of the API, with the fields that are read; where a field is one of several
versions', it is told.
"""

from typing import Any

import pytest

from islands.engines.engine import EngineAway, Job, JobState, Unplaceable, end_in_words
from islands.engines.kubernetes import refusal
from islands.engines.kubernetes_jobs import jobs_of, podless

NAME = "islands-first-site-0-a1b2c"


def jobset(*conditions: tuple[str, str], hosts: int = 1, **metadata: object) -> dict[str, Any]:
    """A JobSet of one island, with conditions that hold: a kind, and a message."""
    told = [{"type": kind, "status": "True", "message": said} for kind, said in conditions]
    about = {"name": NAME, "annotations": {"islands-name": "site-0"}, **metadata}
    job = {"name": "hosts", "template": {"spec": {"parallelism": hosts}}}
    return {"metadata": about, "spec": {"replicatedJobs": [job]}, "status": {"conditions": told}}


def pod(
    phase: str, index: int = 0, node: str = "node-1", *, state: object = None, **status: object
) -> dict[str, Any]:
    container = {"name": "island", "state": state or {}}
    labels = {
        "jobset.sigs.k8s.io/jobset-name": NAME,
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    told = {"phase": phase, "containerStatuses": [container], **status}
    return {"metadata": {"labels": labels}, "spec": {"nodeName": node}, "status": told}


def ended(code: int, message: str = "", reason: str = "Error", at: str = "2026-11-25") -> object:
    told = {"exitCode": code, "reason": reason, "finishedAt": at, "message": message}
    return {"terminated": told}


def job(told: dict[str, Any], *pods: dict[str, Any], events: tuple[Any, ...] = ()) -> Job:
    (found,) = jobs_of([told], pods, events)
    assert (found.name, found.job) == ("site-0", NAME)
    return found


# --- states -------------------------------------------------------------------------------------


def test_an_island_runs_once_all_of_its_hosts_do() -> None:
    hosts = pod("Running", 1, "node-b"), pod("Running", 0, "node-a")
    found = job(jobset(hosts=2), *hosts)
    assert (found.state, found.where) == (JobState.RUNNING, "node-a node-b")
    assert job(jobset(hosts=2), hosts[0]).state is JobState.WAITING


def test_a_job_that_is_deleted_is_ending_on_purpose() -> None:
    found = job(jobset(deletionTimestamp="2026-11-25T12:00:00Z"), pod("Running"))
    assert (found.state, found.cancelled) == (JobState.ENDING, True)


def test_a_job_whose_hosts_ended_in_order_has_ended_with_0() -> None:
    found = job(jobset(("Completed", "jobset completed successfully")), pod("Succeeded"))
    assert (found.state, found.code, end_in_words(found)) == (JobState.ENDED, 0, "")


# --- why it waits -------------------------------------------------------------------------------


def test_a_wait_is_told_in_the_schedulers_words() -> None:
    no_room = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "message": no_room}
    assert job(jobset(), pod("Pending", node="", conditions=[condition])).why == no_room


def test_a_wait_is_told_in_the_nodes_words() -> None:
    state = {"waiting": {"reason": "ErrImagePull", "message": "islands: not found"}}
    assert job(jobset(), pod("Pending", state=state)).why == "ErrImagePull: islands: not found"


def test_a_wait_is_told_in_the_queues_words() -> None:
    found = job(jobset(("Suspended", "jobset is suspended")))
    assert (found.state, found.why) == (JobState.WAITING, "jobset is suspended")


def test_a_pod_on_a_lost_node_is_no_running_host() -> None:
    lost = pod("Running")
    lost["metadata"]["deletionTimestamp"] = "2026-11-25T12:00:00Z"
    found = job(jobset(), lost)
    assert (found.state, found.why) == (
        JobState.WAITING,
        "a pod on node-1 is to end, and has not ended",
    )


def test_a_quota_that_is_exceeded_is_told_by_the_event_of_it() -> None:
    told = [
        {
            "involvedObject": {"name": f"{NAME}-hosts-0"},
            "message": f"pods is forbidden: exceeded quota: gpus, {number}",
            "lastTimestamp": f"2026-11-25T12:0{number}:00Z",
        }
        for number in (2, 1)
    ]
    assert podless([jobset()], [])
    assert job(jobset(), events=tuple(told)).why == "pods is forbidden: exceeded quota: gpus, 2"


def test_nobody_asks_for_events_where_pods_or_the_end_tell_enough() -> None:
    assert not podless([jobset()], [pod("Pending")])
    assert not podless([jobset(("Failed", ""))], [])


# --- how it ended -------------------------------------------------------------------------------


def test_a_mistake_ends_with_its_exit_code_and_last_line() -> None:
    said = "loading\npython -m islands.learner: the task has no field rows\n"
    pods = (
        pod("Failed", 0, state=ended(2, said, at="2026-11-25T12:00:00Z")),
        pod("Failed", 1, state=ended(143, "", at="2026-11-25T12:00:09Z")),
    )
    found = job(jobset(("Failed", "jobset failed due to one or more job failures")), *pods)
    assert found.state is JobState.ENDED
    assert (
        end_in_words(found) == "exit code 2: python -m islands.learner: the task has no field rows"
    )


def test_the_last_of_several_failures_is_told() -> None:
    pods = (
        pod("Failed", state=ended(1, "no supervisor answered", at="2026-11-25T12:00:00Z")),
        pod("Failed", state=ended(137, "", "OOMKilled", at="2026-11-25T12:05:00Z")),
    )
    found = job(jobset(("Failed", "")), *pods)
    assert end_in_words(found) == "exit code 137: OOMKilled on node-1: exit code 137"


def test_a_failure_without_pods_is_told_in_jobsets_words() -> None:
    found = job(jobset(("Failed", "jobset failed due to one or more job failures")))
    assert end_in_words(found) == "ended: jobset failed due to one or more job failures"


def test_restarts_are_counted_by_rank_and_by_job() -> None:
    told = jobset(hosts=2)
    told["status"] |= {
        "restarts": 1,
        "replicatedJobsStatus": [{"name": "hosts", "jobRestarts": [2]}],
    }
    pods = [pod("Failed", 0, state=ended(1)), pod("Running", 0), pod("Running", 1)]
    found = job(told, *pods)
    assert (found.restarts, found.state) == (4, JobState.RUNNING)


# --- what the API refuses -----------------------------------------------------------------------

FROM = "Error from server"


@pytest.mark.parametrize(
    ("said", "error", "told"),
    [
        (
            f'{FROM} (Forbidden): jobsets "a" is forbidden: exceeded quota: jobs',
            EngineAway,
            "quota",
        ),
        (f"{FROM} (Conflict): it was modified", EngineAway, "no time: it was modified"),
        (f"{FROM} (TooManyRequests): too many requests", EngineAway, "no time: too many requests"),
        (
            f"{FROM}: etcdserver: request timed out",
            EngineAway,
            "no time: etcdserver: request timed",
        ),
        ("Unable to connect to the server: EOF", EngineAway, "does not answer: Unable to connect"),
        (f'{FROM} (Forbidden): User "x" cannot', Unplaceable, 'does not allow it: User "x" cannot'),
        ("You must be logged in to the server (Unauthorized)", Unplaceable, "does not allow it"),
        (
            f"{FROM} (NotFound): the server could not find it",
            Unplaceable,
            "JobSet is not installed",
        ),
        (
            f'{FROM} (NotFound): namespaces "far" not found',
            Unplaceable,
            'refuses it: namespaces "far',
        ),
        (
            f"{FROM} (Invalid): JobSet name is too long",
            Unplaceable,
            "refuses it: JobSet name is too",
        ),
        ("The request is invalid", Unplaceable, "refuses it: The request is invalid"),
        ("The request is invalid: too long", Unplaceable, "refuses it: too long"),
        ("stat /none: no such file or directory", Unplaceable, "no cluster is named: stat /none"),
    ],
)
def test_what_kubectl_says_is_a_wait_or_a_mistake(
    said: str, error: type[Exception], told: str
) -> None:
    found = refusal(said)
    assert type(found) is error
    assert told in str(found)
