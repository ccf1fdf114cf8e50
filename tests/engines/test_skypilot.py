"""Islands as managed jobs: what SkyPilot is given, and what is made of its answers."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from islands.engines.engine import EngineAway, Island, JobState, RunMark, Unplaceable, make_engine
from islands.engines.needs import Needs, read_islands
from islands.engines.skypilot import Api, SkyPilot, error_of, job_of, task_of, words
from islands.protocol.errors import SettingsError

MARK = RunMark("first", "1a2b3c4d")
NAME = "islands-first-1a2b3c4d-site-0-1"
ENVIRONMENT = {
    "ISLANDS_SUPERVISOR": "203.0.113.7:7070",
    "ISLANDS_NAME": "site-0",
    "ISLANDS_TOKEN": "do not tell",
}
LEARNER = "python -m islands.learner --task mine.py"
ISLANDS = {
    "plain": Needs("skypilot"),
    "several hosts": Needs("skypilot", hosts=2, accelerators="H100:8"),
    "spot": Needs("skypilot", preemptible=True, accelerators="A100"),
    "region": Needs("skypilot", region="aws/us-east-1", cpus=7.5, memory_gib=64),
    "image": Needs(
        "skypilot", image="nvcr.io/nvidia/jax:25.01-py3", setup=("pip install islands",)
    ),
    "slurm": Needs("skypilot", region="slurm/campus/gpu", accelerators="H100:4"),
    "own command": Needs("skypilot", command="torchrun train.py", env={"WIDTH": "64"}),
}


def island(needs: Needs) -> Island:
    command = needs.command or LEARNER
    return Island("site-0", MARK, needs, command, {**ENVIRONMENT, **needs.env})


ATTEMPTS = [replace(island(Needs("skypilot")), attempt=number) for number in (1, 2)]


# --- what SkyPilot is given -------------------------------------------------------------------


def test_an_island_is_a_task() -> None:
    needs = Needs(
        "skypilot",
        hosts=2,
        accelerators="H100:8",
        preemptible=True,
        region="gcp/us-central1",
        cpus=8,
        image="mine:1",
    )
    task = task_of(island(needs), NAME, workdir="code")
    assert task["resources"] == {
        "infra": "gcp/us-central1",
        "accelerators": "H100:8",
        "cpus": "8+",
        "use_spot": True,
        "image_id": "docker:mine:1",
    }
    assert (task["name"], task["num_nodes"], task["workdir"]) == (NAME, 2, "code")
    assert task["secrets"] == {"ISLANDS_TOKEN": "do not tell"}
    assert task["envs"] == {k: v for k, v in ENVIRONMENT.items() if k != "ISLANDS_TOKEN"}
    assert task_of(island(Needs("skypilot")), NAME)["resources"] == {}


def test_each_host_knows_its_rank_and_the_first_one() -> None:
    needs = Needs("skypilot", hosts=2, setup=("export greeting=hello",), command='echo "$greeting"')
    task = task_of(
        Island(
            "site-0",
            MARK,
            needs,
            'env "greeting=$greeting" sh -c \'echo "$greeting $ISLANDS_RANK $ISLANDS_ADDRESS"\'',
        ),
        NAME,
    )
    told = {**os.environ, "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5"}
    ran = subprocess.run(
        ["bash", "-c", str(task["run"])],  # noqa: S607
        env=told,
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    assert ran.stdout == "hello 1 10.0.0.4\n"


def test_describing_asks_nobody_and_hides_secrets() -> None:
    engine = make_engine("skypilot", MARK, {"group": "training"})
    text = engine.describe(island(ISLANDS["spot"]))
    assert text.startswith("# sky jobs launch --job-group training\n")
    assert "do not tell" not in text
    task = yaml.safe_load(text)
    assert task["secrets"] == {"ISLANDS_TOKEN": "(hidden)"}
    assert "run: |\n  exec python -m islands.learner" in text


def test_a_setting_that_is_not_known_is_told() -> None:
    with pytest.raises(
        SettingsError, match=r"settings\.zone is not known to skypilot; .* group, wo"
    ):
        SkyPilot(MARK, {"zone": "a"})


SKYPILOT_READS = """
import json, sys
import sky
from sky.utils import dag_utils

told = json.load(sys.stdin)
tasks = [sky.Task.from_yaml_config(each) for each in told["tasks"]]
chains = [dag_utils.load_chain_dag_from_yaml_str(each) for each in told["texts"]]
assert all(len(chain.tasks) == 1 for chain in chains)
group = dag_utils.load_dag_from_yaml_str(told["group"])
read = [
    {
        "name": task.name,
        "nodes": task.num_nodes,
        "run": task.run,
        "secrets": sorted(task.secrets),
        "resources": [each.to_yaml_config() for each in task.resources],
    }
    for task in (*tasks, *(chain.tasks[0] for chain in chains))
]
grouped = [group.is_job_group(), group.primary_tasks, [task.name for task in group.tasks]]
grouped.append([task.api_server_access for task in group.tasks])
print("READ" + json.dumps([read, grouped]))
"""


def page_block(word: str) -> str:
    """Return the first block of YAML on the page of SkyPilot in which a word is."""
    page = Path(__file__).parents[2] / "docs" / "engines" / "skypilot.md"
    blocks = [block.partition("```")[0] for block in page.read_text().split("```yaml\n")[1:]]
    return next(block for block in blocks if word in block)


def test_the_page_shows_a_table_that_is_read() -> None:
    entries = read_islands(yaml.safe_load(page_block("islands:"))["islands"])
    assert list(entries) == ["east", "anywhere"]
    for needs in entries.values():
        engine = make_engine(needs.engine, MARK, needs.settings)
        task = yaml.safe_load(engine.describe(island(needs)))
        assert task["workdir"] == "."
        assert task["run"].splitlines()[-2] == "python -m pip install 'islands[jax]'"


@pytest.mark.skipif(find_spec("sky") is None, reason="SkyPilot is not installed")
def test_skypilot_reads_each_task(tmp_path: Path) -> None:
    engine = SkyPilot(MARK, {})
    tasks = [task_of(island(needs), NAME) for needs in ISLANDS.values()]
    texts = [engine.describe(island(needs)) for needs in ISLANDS.values()]
    ran = subprocess.run(
        [sys.executable, "-c", SKYPILOT_READS],
        input=json.dumps(
            {"tasks": tasks, "texts": texts, "group": page_block("execution: parallel")}
        ),
        env={**os.environ, "HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    read, grouped = json.loads(ran.stdout.partition("READ")[2])
    assert grouped == [True, ["hub"], ["hub"], [True]]
    for told in (read[: len(ISLANDS)], read[len(ISLANDS) :]):
        found = dict(zip(ISLANDS, told, strict=True))
        (resources,) = found["several hosts"]["resources"]
        assert found["several hosts"]["nodes"] == 2
        assert resources["accelerators"] == {"H100": 8}
        (resources,) = found["spot"]["resources"]
        assert resources["use_spot"] is True
        assert resources["accelerators"] == {"A100": 1}
        (resources,) = found["region"]["resources"]
        assert (resources["infra"], resources["cpus"]) == ("aws/us-east-1", "7.5+")
        assert resources["memory"] == "64+"
        (resources,) = found["image"]["resources"]
        assert resources["image_id"] == {"null": "docker:nvcr.io/nvidia/jax:25.01-py3"}
        assert found["image"]["run"].startswith("pip install islands\nexec ")
        assert found["slurm"]["resources"][0]["infra"] == "slurm/campus/gpu"
        assert found["own command"]["run"] == "exec torchrun train.py\n"
        for each in told:
            assert each["secrets"] == ["ISLANDS_TOKEN"]


# --- what SkyPilot tells ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "state", "code", "cancelled"),
    [
        ("PENDING", JobState.WAITING, None, False),
        ("STARTING", JobState.WAITING, None, False),
        ("RUNNING", JobState.RUNNING, None, False),
        ("RECOVERING", JobState.WAITING, None, False),
        ("CANCELLING", JobState.ENDING, None, False),
        ("SUCCEEDED", JobState.ENDED, 0, False),
        ("CANCELLED", JobState.ENDED, None, True),
        ("FAILED", JobState.ENDED, 7, False),
        ("FAILED_NO_RESOURCE", JobState.ENDED, 7, False),
    ],
)
def test_a_record_is_a_job(status: str, state: JobState, code: int | None, cancelled: bool) -> None:  # noqa: FBT001
    reason = "Job exited with exit codes [0, 7] (user program failure). To see the details, run:"
    record = {
        "job_name": NAME,
        "status": status,
        "recovery_count": 3,
        "infra": "AWS (us-east-1)",
        "failure_reason": reason if "FAILED" in status else None,
    }
    job = job_of(record, MARK)
    assert job is not None
    assert (job.name, job.job, job.state, job.restarts) == ("site-0", NAME, state, 3)
    assert (job.code, job.cancelled) == (code, cancelled)
    assert job.where == ("" if state is JobState.WAITING else "AWS (us-east-1)")
    assert job.why.startswith("" if state is JobState.RUNNING else status.lower())


@pytest.mark.parametrize(
    "name", ["islands-first-99999999-site-0-1", "site-0", "islands-first-1a2b3c4d-", None]
)
def test_a_job_of_another_run_is_none(name: str | None) -> None:
    assert job_of({"job_name": name, "status": "RUNNING"}, MARK) is None


class ResourcesUnavailableError(Exception): ...


class NoCloudAccessError(Exception): ...


class InvalidSkyPilotConfigError(ValueError): ...


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NoCloudAccessError("No cloud is enabled.\n  Run: sky check"), Unplaceable),
        (InvalidSkyPilotConfigError("x"), Unplaceable),
        (ModuleNotFoundError("x", name="sky.jobs"), Unplaceable),
        (ResourcesUnavailableError("quota"), EngineAway),
        (RuntimeError("connection refused"), EngineAway),
    ],
)
def test_an_error_may_pass_or_must_be_mended(error: Exception, kind: type) -> None:
    made = error_of(error)
    assert type(made) is kind
    if isinstance(error, NoCloudAccessError):
        assert str(made) == "skypilot: No cloud is enabled. Run: sky check"
    if isinstance(error, ModuleNotFoundError):
        assert str(made).endswith("pip install 'islands[skypilot]'")


def test_words_are_one_line() -> None:
    assert words("\x1b[31mNo\x1b[0m\n room") == "No room"
    assert len(words("a" * 10_000)) == 401


# --- placing ----------------------------------------------------------------------------------


class Cloud(Api):
    """SkyPilot in memory: launches are in the queue at once, unless they are held up."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, object]] = []
        self.groups: list[str | None] = []
        self.refuses: Exception | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.aborted: set[str] = set()
        self.graceful: list[bool] = []

    def launch(self, task: Mapping[str, object], group: str | None) -> str:
        self.groups.append(group)
        return str(task["name"])

    def wait(self, request: str) -> None:
        self.goes_on.wait(10.0)
        if self.refuses is not None:
            raise self.refuses
        if request not in self.aborted:
            self.jobs.append({"job_name": request, "status": "STARTING"})

    def abort(self, request: str) -> None:
        self.aborted.add(request)

    def queue(self, part: str) -> Sequence[Mapping[str, object]]:
        return [job for job in self.jobs if part in str(job["job_name"])]

    def cancel(self, name: str, *, graceful: bool) -> None:
        self.graceful.append(graceful)
        for job in self.jobs:
            if job["job_name"] == name and job["status"] in ("STARTING", "RUNNING"):
                job["status"] = "CANCELLED"


def test_an_island_is_placed_found_again_and_ended() -> None:
    cloud = Cloud()
    job = SkyPilot(MARK, {"group": "17"}, cloud).place(island(Needs("skypilot")))
    cloud.jobs.append({"job_name": "islands-first-00000000-site-0-1", "status": "RUNNING"})
    engine = SkyPilot(MARK, {}, cloud)
    (found,) = engine.list()
    assert (found.job, found.name, found.state) == (job, "site-0", JobState.WAITING)
    engine.end(job, at_once=False)
    engine.end(job, at_once=True)
    (ended,) = engine.list()
    assert ended.cancelled
    assert cloud.graceful == [True, False]
    assert cloud.groups == ["17"]
    assert cloud.jobs[1]["status"] == "RUNNING"


def test_two_attempts_at_one_island_have_two_names() -> None:
    cloud = Cloud()
    engine = SkyPilot(MARK, {}, cloud)
    one, other = (engine.place(attempt) for attempt in ATTEMPTS)
    engine.end(one, at_once=False)
    assert {job.job: job.state for job in engine.list()} == {
        one: JobState.ENDED,
        other: JobState.WAITING,
    }


def test_a_launch_that_takes_long_is_a_job_that_waits() -> None:
    cloud = Cloud()
    cloud.goes_on.clear()
    engine = SkyPilot(MARK, {}, cloud, launch_s=0.0)
    one, other = (engine.place(attempt) for attempt in ATTEMPTS)
    assert {job.job: job.why for job in engine.list()} == dict.fromkeys(
        (one, other), "SkyPilot launches it"
    )
    engine.end(one, at_once=False)
    launch = engine._launches[other].launched  # noqa: SLF001  the test waits for its thread
    cloud.goes_on.set()
    launch.result(10.0)
    assert [job.job for job in engine.list() if job.why != "SkyPilot launches it"] == [other]
    assert len(engine.list()) == 1


@pytest.mark.parametrize(
    ("error", "kind"), [(NoCloudAccessError("none"), Unplaceable), (OSError("gone"), EngineAway)]
)
def test_a_launch_that_fails_is_told(error: Exception, kind: type[Exception]) -> None:
    cloud = Cloud()
    cloud.refuses = error
    with pytest.raises(kind, match=str(error)):
        SkyPilot(MARK, {}, cloud).place(island(Needs("skypilot")))
    cloud.goes_on.clear()
    engine = SkyPilot(MARK, {}, cloud, launch_s=0.0)
    job = engine.place(island(Needs("skypilot")))
    launch = engine._launches[job].launched  # noqa: SLF001  the test waits for its thread
    cloud.goes_on.set()
    assert launch.exception(10.0) is error
    (told,) = engine.list()
    assert (told.state, told.why, told.code) == (JobState.ENDED, str(error), None)
    assert not engine.list()


def test_a_launch_that_is_over_is_remembered_no_longer() -> None:
    """A job that left the queue before it was seen there would hold its island's slot for ever."""
    cloud = Cloud()
    cloud.goes_on.clear()
    engine = SkyPilot(MARK, {}, cloud, launch_s=0.0)
    job = engine.place(island(Needs("skypilot")))
    launch = engine._launches[job].launched  # noqa: SLF001  the test waits for its thread
    cloud.goes_on.set()
    launch.result(10.0)
    cloud.jobs.clear()
    assert [each.state for each in engine.list()] == [JobState.WAITING]
    assert not engine.list()


@pytest.mark.skipif(find_spec("sky") is not None, reason="SkyPilot is installed")
def test_a_package_that_is_missing_is_told() -> None:
    """Describing works without it, so that a run can be planned."""
    engine = make_engine("skypilot", MARK, {})
    assert engine.describe(island(Needs("skypilot"))).startswith("# sky jobs launch\n")
    with pytest.raises(Unplaceable, match=r"engine skypilot needs sky, .*islands\[skypilot\]"):
        engine.place(island(Needs("skypilot")))
