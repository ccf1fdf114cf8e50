"""What Ray is asked to give an island, and what its jobs mean, without any Ray."""

from pathlib import Path

import pytest
import yaml

from islands.engines.engine import EngineAway, Island, JobState, RunMark, Unplaceable, end_in_words
from islands.engines.needs import Needs, read_islands
from islands.engines.ray import Ray, Record, job_of, refusal, request_of, script_of, settings_of
from islands.protocol.errors import SettingsError

OF = RunMark("first", "ab12cd34")
JOB = "islands-first-site-0-ab12cd34-1"
FOLDER = Path("/shared/islands")
MUST_BE = "it must be names and numbers above 0, as fast_link:1,site_a:0.5"
URL = "the URL of Ray's dashboard, as http://10.0.0.1:8265"
PENDING = "Job has not started yet."
HEAD = "Ray at http://head:8265"
FAILED = "Job entrypoint command failed with exit code 3, last available logs (truncated):\n"
ECHO = f"Runtime env is setting up.\nRunning entrypoint for job {JOB}: exec bash {JOB}.sh\n"
LOST = "Job supervisor actor died: The actor died.\n\tclass_name: JobSupervisor\nIts node has died."
LOST_TOLD = "Job supervisor actor died: The actor died. Its node has died."
COMMAND = "JOB_ENTRYPOINT_COMMAND_ERROR"
LATE = "Job supervisor actor failed to start within 900.0 seconds."


def island(**needs: object) -> Island:
    environment = {"ISLANDS_TOKEN": "secret", "COLOUR": "deep blue"}
    return Island("site-0", OF, Needs("ray", **needs), "train", environment)  # type: ignore[arg-type]


def record(status: str, message: str = "", **more: object) -> Record:
    labels = {"islands_run": OF.label, "islands_island": "site-0"}
    return Record(
        *(status, JOB, labels, message),
        driver_agent_http_address="http://10.0.0.3:52365",
        driver_node_id="3fa9c2d1e0f2aabbccdd",
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("status", "asked", "state", "where", "cancelled"),
    [
        ("PENDING", False, JobState.WAITING, "", False),
        ("PENDING", True, JobState.ENDED, "", True),
        ("RUNNING", False, JobState.RUNNING, "10.0.0.3 (node 3fa9c2d1e0f2)", False),
        ("RUNNING", True, JobState.ENDING, "10.0.0.3 (node 3fa9c2d1e0f2)", False),
        ("SUCCEEDED", False, JobState.ENDED, "", False),
        ("FAILED", False, JobState.ENDED, "", False),
        ("STOPPED", False, JobState.ENDED, "", True),
        ("STOPPED", True, JobState.ENDED, "", True),
    ],
)
def test_a_job_is_as_its_status_and_its_file_say(
    status: str, *, asked: bool, state: JobState, where: str, cancelled: bool
) -> None:
    job = job_of(record(status), asked=asked)
    assert (job.name, job.job) == ("site-0", JOB)
    assert (job.state, job.where, job.cancelled) == (state, where, cancelled)


@pytest.mark.parametrize(
    ("status", "message", "kind", "code", "told"),
    [
        ("SUCCEEDED", "Job finished successfully.", None, 0, ""),
        ("FAILED", f"{FAILED}no disk\n{ECHO}", COMMAND, 3, "exit code 3: no disk"),
        ("FAILED", FAILED + ECHO, COMMAND, 3, "exit code 3"),
        ("FAILED", LOST, "JOB_SUPERVISOR_ACTOR_DIED", None, f"ended: {LOST_TOLD}"),
        ("STOPPED", "Job was intentionally stopped.", None, None, ""),
    ],
)
def test_the_end_of_a_job_is_told_in_its_own_words(
    status: str, message: str, kind: str | None, code: int | None, told: str
) -> None:
    """Ray may write a line of its own after those of the command."""
    job = job_of(record(status, message, error_type=kind, driver_exit_code=code), asked=False)
    assert (job.state, job.code, job.began) == (JobState.ENDED, code, True)
    assert end_in_words(job) == told


def test_a_job_that_ray_lets_wait_no_longer_never_began() -> None:
    timeout = {"error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"}
    job = job_of(record("FAILED", LATE, **timeout), asked=False)
    assert (job.state, job.began, job.why) == (JobState.ENDED, False, LATE)
    assert job_of(record("PENDING", PENDING), asked=False).why == PENDING


def test_needs_become_what_the_jobs_api_is_asked_for() -> None:
    asked = island(
        cpus=8.0,
        memory_gib=2.0,
        accelerators="H100:8",
        region="eu-west",
        settings={"resources": "fast_link:1, site_a:0.5"},
    )
    assert request_of(asked, FOLDER) == {
        "submission_id": JOB,
        "entrypoint": f"exec bash /shared/islands/{JOB}.sh",
        "metadata": {"islands_run": "islands:first:ab12cd34", "islands_island": "site-0"},
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "30"}},
        "entrypoint_num_cpus": 8.0,
        "entrypoint_num_gpus": 8.0,
        "entrypoint_memory": 2 * 2**30,
        "entrypoint_resources": {"accelerator_type:H100": 0.001, "fast_link": 1.0, "site_a": 0.5},
        "entrypoint_label_selector": {"ray.io/region": "eu-west", "ray.io/market-type": "!spot"},
    }
    tpu = request_of(island(accelerators="TPU-V4:4", preemptible=True), FOLDER)
    assert tpu["entrypoint_resources"] == {"TPU": 4.0, "accelerator_type:TPU-V4": 0.001}
    assert (tpu["entrypoint_num_cpus"], "entrypoint_label_selector" in tpu) == (1.0, False)
    gpu = request_of(island(accelerators="GPU:2"), FOLDER)
    assert (gpu["entrypoint_num_gpus"], "entrypoint_resources" in gpu) == (2.0, False)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"adress": "head:6379"},
            "settings.adress is not known to ray; it may have address, folder, resources",
        ),
        ({"address": "head:6379"}, f"settings.address is 'head:6379'; it must be {URL}"),
        ({"resources": "fast"}, f"settings.resources is 'fast'; {MUST_BE}"),
        ({"resources": "fast:0"}, f"settings.resources is 'fast:0'; {MUST_BE}"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, str], told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_of(settings)
    assert str(refused.value) == told


def test_the_page_shows_a_table_that_is_read() -> None:
    page = Path(__file__).parents[2] / "docs" / "engines" / "ray.md"
    block = page.read_text().split("```yaml\n")[1].partition("```")[0]
    entries = read_islands(yaml.safe_load(block)["islands"])
    asked = {
        name: request_of(Island(name, OF, needs, "train"), FOLDER)
        for name, needs in entries.items()
    }
    assert {name: each["entrypoint_num_cpus"] for name, each in asked.items()} == {"site": 2.0}


def test_secrets_stand_in_the_jobs_file_alone() -> None:
    shown = Ray(OF, {"folder": str(FOLDER)}).describe(island())
    assert "secret" not in shown
    told = yaml.safe_load(shown)
    assert (told["submission_id"], told["address"]) == (JOB, "http://127.0.0.1:8265")
    assert told["script"] == script_of(island(), shown=True)
    secret, _, *rest = script_of(island()).splitlines()
    assert (secret, rest) == (
        "export ISLANDS_TOKEN=secret",
        ["export COLOUR='deep blue'", "exec train"],
    )


@pytest.mark.parametrize(
    ("needs", "told"),
    [
        ({"image": "mine:1"}, "image of site-0 is 'mine:1', but a job of Ray runs where"),
        ({"hosts": 2}, "hosts of site-0 is 2, but an island on Ray has one host"),
    ],
)
def test_what_a_job_of_ray_cannot_have_is_refused(needs: dict[str, object], told: str) -> None:
    with pytest.raises(Unplaceable, match=told):
        request_of(island(**needs), FOLDER)


@pytest.mark.parametrize(
    ("status", "said", "kind", "told"),
    [
        (401, "Unauthorized: no token", Unplaceable, f"{HEAD} refuses: Unauthorized: no token"),
        (
            500,
            "Traceback\nRuntimeError: Request failed with status code 400: no label.",
            *(Unplaceable, f"{HEAD} refuses: RuntimeError: Request failed with status code 400"),
        ),
        (500, "No available agent", EngineAway, f"{HEAD} does not answer: No available agent"),
        (429, "busy", EngineAway, f"{HEAD} does not answer: busy"),
        (502, "", EngineAway, f"{HEAD} does not answer: status 502"),
    ],
)
def test_an_error_of_ray_is_mended_or_waited_for(
    status: int, said: str, kind: type[Exception], told: str
) -> None:
    error = refusal(HEAD, status, said)
    assert type(error) is kind
    assert str(error).startswith(told)
