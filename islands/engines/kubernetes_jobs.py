"""Jobs of a run as Kubernetes tells them: its JobSets, their pods, and why there are none.

A JobSet says that an island has ended and not with which exit code, so its pods are read with it:
all of the run's by one call, however many there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from islands.engines.engine import Job, JobState, one_line
from islands.engines.kubernetes_manifests import CONTAINER, JOBSET_NAME, NAME, POD_INDEX
from islands.protocol.errors import DONE, OF_NO_USE

ApiObject = Mapping[str, Any]
"""An object as the API tells it."""


def jobs_of(
    jobsets: Iterable[ApiObject], pods: Iterable[ApiObject], events: Iterable[ApiObject]
) -> list[Job]:
    """Return the jobs of a run by its JobSets, their pods, and events of pods that lack."""
    by_jobset: dict[str, list[ApiObject]] = {}
    for pod in pods:
        by_jobset.setdefault(_labels(pod).get(JOBSET_NAME, ""), []).append(pod)
    newest = {
        str(event["involvedObject"].get("name", "")): str(event.get("message", ""))
        for event in sorted(events, key=lambda event: str(event.get("lastTimestamp") or ""))
    }
    return [
        _job(jobset, by_jobset.get(jobset["metadata"]["name"], []), newest) for jobset in jobsets
    ]


def podless(jobsets: Iterable[ApiObject], pods: Iterable[ApiObject]) -> bool:
    """Return whether a JobSet that has not ended has no pods, which only events explain."""
    having = {_labels(pod).get(JOBSET_NAME) for pod in pods}
    return any(
        not _ended(jobset) and jobset["metadata"]["name"] not in having for jobset in jobsets
    )


def _job(jobset: ApiObject, pods: Sequence[ApiObject], events: Mapping[str, str]) -> Job:
    name = jobset["metadata"]["name"]
    state, why, code = _state(jobset, pods)
    if state is JobState.WAITING and not why:
        why = next((message for of, message in events.items() if of.startswith(f"{name}-")), "")
    here = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
    nodes = dict.fromkeys(pod["spec"].get("nodeName") or "" for pod in sorted(here, key=_index))
    return Job(
        name=jobset["metadata"].get("annotations", {}).get(NAME, ""),
        job=name,
        state=state,
        where=" ".join(filter(None, nodes)),
        restarts=_restarts(jobset, pods),
        why=one_line(why),
        code=code,
        cancelled="deletionTimestamp" in jobset["metadata"],
    )


def _state(jobset: ApiObject, pods: Sequence[ApiObject]) -> tuple[JobState, str, int | None]:
    """Return the state of a JobSet, why it is so, and its exit code."""
    if "deletionTimestamp" in jobset["metadata"]:
        return JobState.ENDING, "", None
    if _condition(jobset, "Completed") is not None:
        return JobState.ENDED, "", DONE
    failed = _condition(jobset, "Failed")
    if failed is not None:
        code, last = _last_end(pods)
        return JobState.ENDED, last or str(failed.get("message", "")), code
    suspended = _condition(jobset, "Suspended")
    if suspended is not None:
        return JobState.WAITING, str(suspended.get("message", "")), None
    hosts = sum(job["template"]["spec"]["parallelism"] for job in jobset["spec"]["replicatedJobs"])
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    if sum(not _leaves(pod) for pod in running) >= hosts:
        return JobState.RUNNING, "", None
    return JobState.WAITING, _why_waiting(pods), None


def _ended(jobset: ApiObject) -> bool:
    return any(_condition(jobset, kind) is not None for kind in ("Completed", "Failed"))


def _condition(known: ApiObject, kind: str) -> ApiObject | None:
    """Return a condition of an object that holds; None if it does not."""
    for condition in known.get("status", {}).get("conditions") or ():
        if condition["type"] == kind and condition["status"] == "True":
            found: ApiObject = condition
            return found
    return None


def _why_waiting(pods: Iterable[ApiObject]) -> str:
    """Return why the first pod that does not run does not, in the scheduler's or the node's words.

    After a failure it is how the last pod ended, for the Job waits before it makes the next.
    """
    for pod in sorted(pods, key=_index):
        if _leaves(pod) and pod["status"].get("phase") == "Running":
            return f"a pod on {pod['spec'].get('nodeName')} is to end, and has not ended"
        for status in pod["status"].get("containerStatuses") or ():
            waiting = status.get("state", {}).get("waiting")
            if waiting:
                reason, message = waiting.get("reason", ""), waiting.get("message", "")
                return f"{reason}: {message}" if message else str(reason)
        for condition in pod["status"].get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return str(condition.get("message") or condition.get("reason", ""))
    return _last_end(pods)[1]


def _last_end(pods: Iterable[ApiObject]) -> tuple[int | None, str]:
    """Return the exit code of the pod that decided how a job failed, and how it ended in words.

    That is one with exit code 2, which fails a job, or else the last that failed by itself.
    """
    ends = [
        (status["state"]["terminated"], pod)
        for pod in pods
        if pod["status"].get("phase") == "Failed"
        for status in pod["status"].get("containerStatuses") or ()
        if status["name"] == CONTAINER and status.get("state", {}).get("terminated")
    ]
    if not ends:
        said = (str(pod["status"].get("message") or "") for pod in pods)
        return None, next(filter(None, said), "")
    end, pod = max(
        ends, key=lambda each: (each[0]["exitCode"] == OF_NO_USE, str(each[0].get("finishedAt")))
    )
    lines = str(end.get("message") or "").strip().splitlines()
    reason, node = end.get("reason", ""), pod["spec"].get("nodeName", "")
    sentence = lines[-1] if lines else f"exit code {end['exitCode']}"
    if reason not in ("", "Error"):
        sentence = f"{reason} on {node}: {sentence}"
    return int(end["exitCode"]), sentence


def _leaves(pod: ApiObject) -> bool:
    """Return whether a pod was asked to end; on a node that is lost it does not."""
    return "deletionTimestamp" in pod["metadata"]


def _restarts(jobset: ApiObject, pods: Iterable[ApiObject]) -> int:
    """Return how often Kubernetes started an island again: its Job, or one of its pods."""
    status = jobset.get("status", {})
    jobs = status.get("replicatedJobsStatus") or ()
    again = int(status.get("restarts") or 0) + sum(sum(j.get("jobRestarts") or ()) for j in jobs)
    by_index: dict[int, int] = {}
    for pod in pods:
        by_index[_index(pod)] = by_index.get(_index(pod), 0) + 1
    return again + max(by_index.values(), default=1) - 1


def _index(pod: ApiObject) -> int:
    return int(_labels(pod).get(POD_INDEX, 0))


def _labels(known: ApiObject) -> Mapping[str, str]:
    found: Mapping[str, str] = known["metadata"].get("labels") or {}
    return found
