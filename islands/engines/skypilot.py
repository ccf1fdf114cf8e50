"""SkyPilot: an island is a managed job, which SkyPilot brings back when its cloud takes it.

SkyPilot restarts what a cloud took, and the hub what failed by itself (docs/engines/skypilot.md).
All calls are requests to SkyPilot's API server. None has a time limit of its own, so each is waited
for on a thread, for a limited time.

Reference:
    SkyPilot 0.14.1: `sky/jobs/client/sdk.py` (`launch` and its `job_group`), `sky/jobs/state.py`
    (`ManagedJobStatus`), `sky/jobs/controller.py` (recovery by exit code).
"""

import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from islands.engines import engine
from islands.protocol.errors import IslandsError, missing_package, not_installed

SETTINGS = ("group", "workdir")
"""Settings of the engine: a job group, by its number or name; a folder that each host gets."""
LAUNCH_S = 20.0
"""Time in which a launch usually succeeds or fails; one that takes longer waits as a job."""
CALL_S = 120.0
"""Longest wait for another answer: the API server may have to be started first."""
HIDDEN = "(hidden)"
FIELDS = (
    *("job_id", "job_name", "status", "recovery_count", "failure_reason", "details"),
    *("cloud", "region", "zone", "infra", "node_names"),
)
"""What is asked of each job."""
STATES = {
    **dict.fromkeys(("PENDING", "SUBMITTED", "STARTING", "RECOVERING"), engine.JobState.WAITING),
    **dict.fromkeys(("RUNNING", "WINDING_DOWN"), engine.JobState.RUNNING),
    "CANCELLING": engine.JobState.ENDING,
}
"""States of managed jobs; all others are ends."""
MEND = frozenset(
    {
        *("APINotSupportedError", "APIVersionMismatchError", "ApiServerAuthenticationError"),
        *("CloudUserIdentityError", "InvalidCloudConfigs", "InvalidCloudCredentials"),
        *("InvalidSkyPilotConfigError", "NoCloudAccessError", "NotSupportedError"),
        *("PermissionDeniedError", "ResourcesMismatchError", "UserRequestRejectedByPolicy"),
        *("UsageError", "ValueError"),
    }
)
"""Errors of SkyPilot that stay until the user has mended something; all others may pass."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

T = TypeVar("T")


# --- what SkyPilot is given -------------------------------------------------------------------


def prefix_of(of: engine.RunMark) -> str:
    """Return how the names of all jobs of a run begin."""
    return f"islands-{of.run}-{of.mark}-"


def task_of(
    island: engine.Island, name: str, *, workdir: str | None = None, hide: bool = False
) -> dict[str, object]:
    """Return an island's task, as the YAML of SkyPilot has it.

    Set-up lines are part of `run`, since what they do to a shell, such as activating an
    environment, would be lost at the end of SkyPilot's own `setup`. SkyPilot copies the folder
    `workdir` to each host, where the command runs in it.
    """
    needs = island.needs
    resources = {
        "infra": needs.region,
        "accelerators": needs.accelerators,
        "cpus": None if needs.cpus is None else f"{needs.cpus:g}+",
        "memory": None if needs.memory_gib is None else f"{needs.memory_gib:g}+",
        "use_spot": needs.preemptible or None,
        "image_id": None if needs.image is None else f"docker:{needs.image}",
    }
    variables, secret = island.environment, island.secrets
    task = {
        "name": name,
        "resources": {key: value for key, value in resources.items() if value is not None},
        "num_nodes": needs.hosts,
        "workdir": workdir,
        "envs": {k: v for k, v in variables.items() if k not in secret} or None,
        "secrets": {k: HIDDEN if hide else v for k, v in variables.items() if k in secret} or None,
        "run": (_ranks() if needs.hosts > 1 else "") + island.script(),
    }
    return {key: value for key, value in task.items() if value is not None}


def _ranks() -> str:
    first = '"$(printf \'%s\\n\' "$SKYPILOT_NODE_IPS" | head -n 1)"'
    return f'export {engine.RANK}="$SKYPILOT_NODE_RANK"\nexport {engine.ADDRESS}={first}\n'


# --- what SkyPilot tells ----------------------------------------------------------------------


def job_of(record: Mapping[str, object], of: engine.RunMark) -> engine.Job | None:
    """Return the job that a record of SkyPilot's queue tells of; None if it is of another run."""
    job, status = str(record.get("job_name")), str(record.get("status"))
    name, hyphen, _ = job.removeprefix(prefix_of(of)).rpartition("-")
    if not job.startswith(prefix_of(of)) or not hyphen:
        return None
    state = STATES.get(status, engine.JobState.ENDED)
    reason = record.get("failure_reason") or record.get("details")
    why = status.lower() if not reason else f"{status.lower()}: {words(reason)}"
    return engine.Job(
        name,
        job,
        state,
        where="" if state is engine.JobState.WAITING else _where(record),
        restarts=int(str(record.get("recovery_count") or 0)),
        why="" if state is engine.JobState.RUNNING else why,
        code=_code(status, str(reason)) if state is engine.JobState.ENDED else None,
        cancelled=status == "CANCELLED",
    )


def _where(record: Mapping[str, object]) -> str:
    parts = [record.get(key) for key in ("node_names", "infra", "region", "cloud")]
    return next((str(each) for each in parts if each), "")


def _code(status: str, reason: str) -> int | None:
    """Return the exit code that SkyPilot tells among its words: of several hosts, the first bad."""
    if status == "SUCCEEDED":
        return 0
    match = re.search(r"exit codes? (\[[\d, ]+\]|\d+)", reason)
    codes = [] if match is None else [int(each) for each in re.findall(r"\d+", match[1])]
    return next((code for code in codes if code != 0), None)


def words(said: object) -> str:
    """Return what SkyPilot says on one line, without its colours."""
    return engine.one_line(COLOURS.sub("", str(said)))


def error_of(error: BaseException) -> IslandsError:
    """Return the error to raise for one of SkyPilot."""
    package = missing_package(error)
    if package is not None:
        return engine.Unplaceable(not_installed("engine skypilot", package))
    kinds = {kind.__name__ for kind in type(error).__mro__}
    sentence = f"skypilot: {words(error) or type(error).__name__}"
    if kinds & MEND and "RequestException" not in kinds:
        return engine.Unplaceable(sentence)
    return engine.EngineAway(sentence)


# --- SkyPilot ---------------------------------------------------------------------------------


class Api:
    """SkyPilot's API server, by the package skypilot. Every call may block, without a limit."""

    def launch(self, task: Mapping[str, object], group: str | None) -> str:
        """Ask for a managed job, and return the number of the request."""
        import sky

        made = sky.Task.from_yaml_config(dict(task))
        attached = {} if group is None else {"job_group": group}
        return str(sky.jobs.launch(made, name=str(task["name"]), **attached))

    def wait(self, request: str) -> None:
        import sky

        sky.get(request)

    def abort(self, request: str) -> None:
        import sky

        sky.get(sky.api_cancel(request, silent=True))

    def queue(self, part: str) -> Sequence[Mapping[str, object]]:
        """Return records of all jobs in whose names `part` is."""
        import sky

        records: Sequence[object] = ()
        with _unless_none_was_launched():
            asked = sky.jobs.queue_v2(refresh=False, name_match=part, fields=FIELDS)
            records, *_ = sky.get(asked)
        return [
            {key: getattr(record, key, None) for key in FIELDS}
            | {"status": getattr(getattr(record, "status", None), "value", "PENDING")}
            for record in records
        ]

    def cancel(self, name: str, *, graceful: bool) -> None:
        """Cancel the job of this name, if there is one: by SIGTERM to its processes if graceful."""
        import sky

        with _unless_none_was_launched():
            sky.get(sky.jobs.cancel(name=name, graceful=graceful))


@contextmanager
def _unless_none_was_launched() -> Iterator[None]:
    """Let nothing happen where no job was ever launched, so that no jobs controller answers."""
    import sky

    try:
        yield
    except sky.exceptions.ClusterNotUpError as error:
        if error.cluster_status is not None:  # it is there, and does not answer
            raise


def begin(call: Callable[[], T]) -> "Future[T]":
    """Make a call on a thread of its own, which ends no later than this process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  it is raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name="skypilot", daemon=True).start()
    return future


@dataclass(frozen=True, slots=True)
class _Launch:
    """A launch that takes long: done when the job is in the queue, or it has failed."""

    name: str
    request: str
    launched: "Future[None]"

    def job(self, job: str) -> engine.Job:
        if not self.launched.done() or self.launched.exception() is None:
            return engine.Job(self.name, job, engine.JobState.WAITING, why="SkyPilot launches it")
        return engine.Job(
            self.name, job, engine.JobState.ENDED, why=words(self.launched.exception())
        )


class SkyPilot:
    """Places islands as managed jobs of SkyPilot.

    The name of a job is unique, as SkyPilot does not refuse a second one: the run's mark, the
    island's name, the number of the attempt and four random digits. It is known before SkyPilot has
    given the job a number, which takes minutes where its jobs controller must be started first;
    until then the job is listed from memory, as a launch that takes longer than `launch_s`.
    """

    poll_s = 20.0

    def __init__(
        self,
        of: engine.RunMark,
        settings: Mapping[str, str],
        api: Api | None = None,
        launch_s: float = LAUNCH_S,
    ) -> None:
        engine.check_settings("skypilot", settings, SETTINGS)
        self._of = of
        self._settings = settings
        self._api = api or Api()
        self._launch_s = launch_s
        self._launches: dict[str, _Launch] = {}

    def place(self, island: engine.Island) -> str:
        """Launch an island's job, and return its name; a launch that takes long goes on."""
        job = f"{self._name(island)}{secrets.token_hex(2)}"
        task = task_of(island, job, workdir=self._settings.get("workdir"))
        request = self._ask(lambda: self._api.launch(task, self._settings.get("group")))
        launched = begin(lambda: self._api.wait(request))
        try:
            launched.result(self._launch_s)
        except TimeoutError:
            self._launches[job] = _Launch(island.name, request, launched)
        except Exception as error:
            raise error_of(error) from error
        return job

    def end(self, job: str, *, at_once: bool) -> None:
        """Cancel a job, and its launch if that goes on."""
        launch = self._launches.get(job)
        if launch is not None and not launch.launched.done():
            self._ask(lambda: self._api.abort(launch.request))
        self._ask(lambda: self._api.cancel(job, graceful=not at_once))
        self._launches.pop(job, None)

    def list(self) -> Sequence[engine.Job]:
        """Return the run's jobs, and those of launches that go on or have failed."""
        records = self._ask(lambda: self._api.queue(prefix_of(self._of)))
        jobs = [job for job in (job_of(record, self._of) for record in records) if job is not None]
        for job in jobs:
            self._launches.pop(job.job, None)
        waiting = [launch.job(name) for name, launch in self._launches.items()]
        # One that is over is listed for the last time: the queue has it from now on, or nobody.
        self._launches = {
            name: launch for name, launch in self._launches.items() if not launch.launched.done()
        }
        return [*jobs, *waiting]

    def describe(self, island: engine.Island) -> str:
        workdir = self._settings.get("workdir")
        task = task_of(island, self._name(island), workdir=workdir, hide=True)
        group = self._settings.get("group")
        attached = "" if group is None else f" --job-group {group}"
        return f"# sky jobs launch{attached}\n" + engine.yaml_of(task)

    def _name(self, island: engine.Island) -> str:
        return f"{prefix_of(self._of)}{island.name}-{island.attempt}"

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return begin(call).result(CALL_S)
        except TimeoutError as error:
            raise engine.EngineAway(f"skypilot: no answer in {CALL_S:.0f} s") from error
        except Exception as error:
            raise error_of(error) from error
