"""Ray as an engine: an island is a job of Ray's Jobs API, on one node of a cluster.

The job's command is `exec bash FILE`. The file, which only its user may read, has the variables,
secrets among them, and the island's script; it lies in a folder that the hub shares with the nodes,
so that Ray shows no secret. It is there until the island is asked to end, or has ended: without it,
a job that is still waiting never begins. Ray cannot stop such a job, so it counts as ended.

Reference:
    Ray 2.60: `ray/dashboard/modules/job/` (`JobSubmitRequest`, `JobInfo`, `JobErrorType`).
"""

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec

from islands.engines import engine
from islands.engines.needs import Needs
from islands.files.whole_files import atomic_write
from islands.protocol.errors import DONE, SettingsError

CALL_S = 20.0
"""Longest time that the cluster may take for one call."""
LEAVE_S = 30
"""A command that was asked to end, and has not, is killed after this time."""
TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105  the name of a variable

_RUN, _ISLAND = "islands_run", "islands_island"
_REGION, _MARKET = "ray.io/region", "ray.io/market-type"
BAD_REQUEST, NOT_FOUND, BROKEN, BUSY = 400, 404, 500, (408, 429)
_FAILED, _NEVER_BEGAN = "JOB_ENTRYPOINT_COMMAND_ERROR", "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
_RAYS_OWN = ("Running entrypoint for job ", "Runtime env is setting up.")
"""Words of the lines that Ray itself writes to a job's log."""
_GUARD = "(while kill -0 $PPID; do sleep 1; done; kill -KILL 0) > /dev/null 2>&1 &"
"""Kills all that a job has begun once its supervising actor is gone; Ray's own guard does not where
/bin/sh is Debian's."""


@dataclass(frozen=True, slots=True)
class RaySettings:
    """The URL of a cluster's dashboard, a folder that all nodes share, and further resources."""

    address: str = "http://127.0.0.1:8265"
    folder: str = "~/.cache/islands/ray"
    resources: str = ""


class Ray:
    """Places islands as jobs of a cluster of Ray."""

    poll_s = 1.0

    def __init__(self, of: engine.RunMark, settings: Mapping[str, str]) -> None:
        self._of = of
        self._settings = settings_of(settings)
        self._folder = Path(self._settings.folder).expanduser().absolute()

    def place(self, island: engine.Island) -> str:
        """Submit an island's job, and return its name; one that is there already is left alone."""
        request = request_of(island, self._folder)
        job = str(request["submission_id"])
        script = self._script(job)
        script.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(script) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(script_of(island).encode())
        try:
            self._ask("POST", "", request)
        except engine.Unplaceable:
            script.unlink()
            raise
        return job

    def end(self, job: str, *, at_once: bool) -> None:
        """Stop a job: SIGTERM to its processes, SIGKILL after a time, as Ray has nothing sooner."""
        self._script(job).unlink(missing_ok=True)
        self._ask("POST", f"{job}/stop")

    def list(self) -> Sequence[engine.Job]:
        records = msgspec.json.decode(self._ask("GET", ""), type=list[Record])
        here = (record for record in records if record.label(_RUN) == self._of.label)
        jobs = [job_of(each, asked=not self._script(each.job).exists()) for each in here]
        for job in jobs:
            if job.state is engine.JobState.ENDED:
                self._script(job.job).unlink(missing_ok=True)
        return jobs

    def describe(self, island: engine.Island) -> str:
        shown = {
            "address": self._settings.address,
            **request_of(island, self._folder),
            "script": script_of(island, shown=True),
        }
        return engine.yaml_of(shown)

    def _script(self, job: str) -> Path:
        return self._folder / f"{job}.sh"

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        """Return what the Jobs API answers; what is there or gone already is no error."""
        where = f"Ray at {self._settings.address}"
        try:
            status, answer = asyncio.run(_call(method, self._url(path), body))
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            said = str(error) or f"no answer within {CALL_S:.0f} s"
            raise engine.EngineAway(f"{where} does not answer: {said}") from error
        if status < BAD_REQUEST or _is_done(status, answer):
            return answer
        raise refusal(where, status, answer.decode(errors="replace"))

    def _url(self, path: str) -> str:
        return f"{self._settings.address.rstrip('/')}/api/jobs/{path}"


async def _call(method: str, url: str, body: object) -> tuple[int, bytes]:
    token = os.environ.get(TOKEN)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    limit = aiohttp.ClientTimeout(CALL_S)
    async with (
        aiohttp.ClientSession(timeout=limit, headers=headers, trust_env=True) as session,
        session.request(method, url, json=body) as answer,
    ):
        return answer.status, await answer.read()


def _is_done(status: int, answer: bytes) -> bool:
    return (status == NOT_FOUND and b"does not exist" in answer) or b"already exists" in answer


def refusal(where: str, status: int, said: str) -> engine.EngineAway | engine.Unplaceable:
    """Return the error that an answer stands for: the head passes a node's 400 on as its 500."""
    words = next((line for line in reversed(said.splitlines()) if line.strip()), f"status {status}")
    if (status < BROKEN and status not in BUSY) or f"status code {BAD_REQUEST}" in said:
        return engine.Unplaceable(f"{where} refuses: {engine.one_line(words)}")
    return engine.EngineAway(f"{where} does not answer: {engine.one_line(words)}")


# --- what is asked of Ray ---------------------------------------------------------------------


def settings_of(given: Mapping[str, str]) -> RaySettings:
    engine.check_settings("ray", given, RaySettings.__slots__)
    settings = RaySettings(**given)
    if not settings.address.startswith(("http://", "https://")):
        raise SettingsError(
            f"settings.address is {settings.address!r}; it must be the URL of Ray's dashboard, as "
            "http://10.0.0.1:8265"
        )
    more_resources(settings)
    return settings


def more_resources(settings: RaySettings) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in filter(None, (each.strip() for each in settings.resources.split(","))):
        name, _, number = word.rpartition(":")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            name = ""
        if not name or found[name] <= 0:
            raise SettingsError(
                f"settings.resources is {settings.resources!r}; it must be names and numbers above "
                "0, as fast_link:1,site_a:0.5"
            )
    return found


def request_of(island: engine.Island, folder: Path) -> dict[str, object]:
    """Return what the Jobs API is asked for; the job's name tells the island and the attempt."""
    needs = island.needs
    if needs.image is not None:
        raise engine.Unplaceable(
            f"image of {island.name} is {needs.image!r}, but a job of Ray runs where its node "
            "runs; start the cluster's nodes from that image"
        )
    if needs.hosts > 1:
        raise engine.Unplaceable(
            f"hosts of {island.name} is {needs.hosts}, but an island on Ray has one host: have one "
            "island for each host, or place this one by another engine"
        )
    resources = more_resources(settings_of(needs.settings)) | _accelerators(needs)
    labels = {} if needs.region is None else {_REGION: needs.region}
    if not needs.preemptible:
        labels[_MARKET] = "!spot"
    job = f"{island.job_name}-{island.of.mark}-{island.attempt}"
    request = {
        "submission_id": job,
        "entrypoint": f"exec bash {shlex.quote(str(folder / f'{job}.sh'))}",
        "metadata": {_RUN: island.of.label, _ISLAND: island.name},
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(LEAVE_S)}},
        "entrypoint_num_cpus": 1.0 if needs.cpus is None else needs.cpus,
        "entrypoint_num_gpus": resources.pop("GPU", None),
        "entrypoint_memory": needs.memory_gib and int(needs.memory_gib * 2**30),
        "entrypoint_resources": resources or None,
        "entrypoint_label_selector": labels or None,
    }
    return {key: value for key, value in request.items() if value is not None}


def _accelerators(needs: Needs) -> dict[str, float]:
    """Return Ray's resources for a kind of accelerator; its kind is GPU where any will do."""
    if needs.accelerator is None:
        return {}
    kind, number = needs.accelerator
    unit = "TPU" if kind.startswith("TPU") else "GPU"
    any_kind = {} if kind == unit else {f"accelerator_type:{kind}": 0.001}
    return {unit: float(number), **any_kind}


def script_of(island: engine.Island, *, shown: bool = False) -> str:
    """Return what a job's file holds; without secrets if it is shown."""
    secret = () if shown else island.secrets
    lines = [f"export {k}={shlex.quote(v)}" for k, v in island.environment.items() if k in secret]
    return "\n".join([*lines, _GUARD, island.script(exports=True)])


# --- what Ray tells ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """A job as the Jobs API tells it, whose other fields are left alone."""

    status: str
    submission_id: str | None = None
    metadata: dict[str, str] | None = None
    message: str | None = None
    error_type: str | None = None
    driver_agent_http_address: str | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None

    @property
    def job(self) -> str:
        return self.submission_id or ""

    def label(self, key: str) -> str:
        """Return what its metadata, which jobs of others may lack, has under a key."""
        return (self.metadata or {}).get(key, "")


STATES = {"PENDING": engine.JobState.WAITING, "RUNNING": engine.JobState.RUNNING}
"""Statuses of jobs; all others are ends."""


def job_of(record: Record, *, asked: bool) -> engine.Job:
    """Return an island's job, which may have been asked to end."""
    state = STATES.get(record.status, engine.JobState.ENDED)
    cancelled = record.status == "STOPPED"
    if asked and state is engine.JobState.WAITING:
        state, cancelled = engine.JobState.ENDED, True
    elif asked and state is engine.JobState.RUNNING:
        state = engine.JobState.ENDING
    return engine.Job(
        record.label(_ISLAND),
        record.job,
        state,
        where=_where(record) if state in (engine.JobState.RUNNING, engine.JobState.ENDING) else "",
        why="" if state is engine.JobState.RUNNING else _why(record),
        code=DONE if record.status == "SUCCEEDED" else record.driver_exit_code,
        cancelled=cancelled,
        began=record.error_type != _NEVER_BEGAN,
    )


def _where(record: Record) -> str:
    """Return a job's node: its address, and the beginning of its id, as Ray's dashboard has it."""
    address = urlsplit(record.driver_agent_http_address or "").hostname
    return f"{address} (node {(record.driver_node_id or '')[:12]})"


def _why(record: Record) -> str:
    """Return the last line that a command wrote if it failed, and otherwise what Ray says."""
    message = (record.message or "").splitlines()
    lines = [line for line in message if line.strip() and not line.startswith("\t")]
    if record.error_type == _FAILED:
        own = [each for each in lines[1:] if not any(words in each for words in _RAYS_OWN)]
        return engine.one_line(own[-1]) if own else ""
    return engine.one_line(" ".join(lines))
