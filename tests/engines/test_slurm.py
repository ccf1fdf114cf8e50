"""The engine slurm: what it gives to Slurm, and what it makes of what Slurm says.

What Slurm says here, Slurm 22.05 has said.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from islands.engines import slurm
from islands.engines.engine import EngineAway, Island, Job, JobState, RunMark, Unplaceable
from islands.engines.needs import Needs
from islands.engines.slurm import FIELDS, OPTIONS, Slurm, batch_script, read_jobs, refusal
from islands.protocol.errors import SettingsError, UserError

OF = RunMark("first", "0a1b2c3d")


def island(command: str = "python -m islands.learner --name site-0", **needs: object) -> Island:
    return Island(
        "site-0",
        OF,
        Needs(engine="slurm", **needs),  # type: ignore[arg-type]
        command,
        {"ISLANDS_TOKEN": "hush", "ISLANDS_SUPERVISOR": "hub:7070"},
    )


def row(**told: str) -> str:
    """A line of squeue, which pads and cuts its columns."""
    usual = {
        "JobID": "7",
        "State": "RUNNING",
        "RestartCnt": "0",
        "exit_code": "0",
        "Reason": "None",
        "Comment": f"{OF.label}/site-0",
        "STDOUT": "/nowhere",
    }
    fields = {**usual, **told}
    return "".join(f"{fields.get(name, ''):{width}.{width}}" for name, width in FIELDS.items())


def job(**told: str) -> Job:
    (found,) = read_jobs(row(**told) + "\n", OF)
    return found


# --- what Slurm is given ------------------------------------------------------------------------


def test_an_islands_needs_are_options_of_sbatch() -> None:
    words = slurm.submission(
        island(hosts=2, accelerators="h100:8", cpus=7.5, memory_gib=0.5, region="north"),
        {"partition": "gpu", "gres": "gpu:4", "exclusive": "true"},
    )
    assert words[:3] == ["sbatch", "--parsable", "--requeue"]
    assert {
        *("--job-name=islands-first-site-0", f"--comment={OF.label}/site-0", "--nodes=2"),
        *("--ntasks-per-node=1", "--signal=TERM@60", "--open-mode=append", "--export=ALL"),
        *("--cpus-per-task=8", "--mem=512M", "--constraint=north", "--partition=gpu"),
        *("--gres=gpu:4", "--exclusive", "--output=%x-%j.log"),
    } == set(words[3:])
    assert "--gres=gpu:h100:8" in slurm.submission(island(accelerators="h100:8"), {})
    assert "--gres=gpu:2" in slurm.submission(island(accelerators="gpu:2"), {})


def test_a_secret_is_in_no_text() -> None:
    told = Slurm(OF, {}).describe(island())
    assert "hush" not in told
    assert "ISLANDS_TOKEN=..." in told
    assert "ISLANDS_SUPERVISOR=hub:7070" in told
    assert batch_script(island()) in told


@pytest.mark.parametrize("key", ["walltime", "signal", "comment"])
def test_a_setting_that_is_not_known_is_refused(key: str) -> None:
    with pytest.raises(SettingsError, match=rf"settings\.{key} is not known.*{', '.join(OPTIONS)}"):
        Slurm(OF, {key: "1"})


def test_an_image_is_refused() -> None:
    with pytest.raises(Unplaceable, match="image is 'a/b:1', but the engine slurm starts no"):
        Slurm(OF, {}).describe(island(image="a/b:1"))


def test_variables_of_the_hub_alone_do_not_reach_its_jobs() -> None:
    mine = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/x",
        "SBATCH_ACCOUNT": "a",
        "HF_HOME": "/h",
        "ISLANDS_RUN_SEED": "1",
        "SLURM_JOB_ID": "3",
        "SQUEUE_FORMAT2": "x",
        "PJRT_NPROC": "1",
        "JAX_PLATFORMS": "cpu",
        "NOTIFY_SOCKET": "/n",
        "CHILD_OF_ISLANDS": "a:/b",
        "AWS_SECRET_ACCESS_KEY": "k",
        "WANDB_API_KEY": "w",
    }
    told = slurm.environment(mine)
    assert "SLURM_CONF" in told
    assert not {"SLURM_JOB_ID", "SQUEUE_FORMAT2"} & told.keys()
    assert list(slurm.given(mine)) == ["PATH", "SLURM_CONF", "SBATCH_ACCOUNT", "HF_HOME"]


# --- the script, run as it is, with srun and scontrol that do what they do there -------------

SRUN = """#!/bin/bash
printf '%s\\n' "$@" > "$FOLDER/srun"
while [ "$1" != bash ]; do shift; done
export SLURM_PROCID=1
exec "$@"
"""
SCONTROL = """#!/bin/bash
[ "$2" = hostnames ] && printf 'n7\\nn8\\n'
[ "$3" = node ] && echo "NodeName=$4 NodeAddr=10.1.0.${4#n} NodeHostName=$4"
exit 0
"""

LEAVING = """trap 'echo left; exit {own}' TERM
mkfifo "$0.pipe"
echo ready
read -t 20 <> "$0.pipe"
"""


@pytest.fixture
def started(tmp_path: Path) -> Callable[[Island], subprocess.Popen[str]]:
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    paths = f"{tmp_path}:/usr/bin:/bin"

    def start(told: Island) -> subprocess.Popen[str]:
        (tmp_path / "script").write_text(batch_script(told))
        return subprocess.Popen(
            ["/bin/bash", str(tmp_path / "script")],
            env={"PATH": paths, "FOLDER": str(tmp_path), "SLURM_JOB_NODELIST": "n[7-8]"},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def test_each_host_is_told_its_rank_and_the_address_of_the_first(
    started: Callable[[Island], subprocess.Popen[str]], tmp_path: Path
) -> None:
    told = island(
        "bash -c 'echo \"$ISLANDS_RANK of it'\\''s $ISLANDS_ADDRESS:7200 $made\"'",
        hosts=2,
        cpus=3,
        setup=("export made='a b'",),
    )
    out, _ = started(told).communicate(timeout=20)
    assert out == "1 of it's 10.1.0.7:7200 a b\n"
    options = (tmp_path / "srun").read_text().split()
    assert options[:4] == ["--kill-on-bad-exit=0", "--wait=60", "--cpus-per-task=3", "bash"]


@pytest.mark.parametrize("code", [0, 2])
def test_the_exit_code_of_the_command_is_that_of_the_job(
    code: int, started: Callable[[Island], subprocess.Popen[str]]
) -> None:
    process = started(island(f"bash -c 'exit {code}'"))
    process.communicate(timeout=20)
    assert process.returncode == code


@pytest.mark.parametrize(("own", "code"), [(0, 143), (3, 3)])
def test_an_island_that_leaves_by_a_signal_is_not_done(
    own: int, code: int, started: Callable[[Island], subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "leaving").write_text(LEAVING.format(own=own))
    process = started(island(f"bash {tmp_path}/leaving"))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGTERM)  # Slurm signals all processes of a step
    out, _ = process.communicate(timeout=20)
    assert (out, process.returncode) == ("left\n", code)


# --- what Slurm says ------------------------------------------------------------------------------


def test_states_are_those_of_the_port() -> None:
    waiting = job(State="PENDING", Reason="Resources", NodeList="")
    assert waiting == Job("site-0", "7", JobState.WAITING, why="Resources")
    again = job(State="PENDING", Reason="BeginTime", RestartCnt="2")
    assert (again.state, again.restarts) == (JobState.WAITING, 2)
    assert job(State="RUNNING", NodeList="n[1-2]") == Job("site-0", "7", JobState.RUNNING, "n[1-2]")
    states = {
        JobState.WAITING: ("REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
        JobState.RUNNING: ("CONFIGURING", "SUSPENDED", "RESIZING", "STOPPED", "SIGNALING"),
        JobState.ENDING: ("COMPLETING",),
        JobState.ENDED: ("TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE"),
    }
    for state, words in states.items():
        assert {job(State=word).state for word in words} == {state}


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [
        *(("COMPLETED", "0", 0), ("FAILED", "512", 2), ("FAILED", "36608", 143)),
        *(("FAILED", "4021", None), ("TIMEOUT", "0", None), ("NODE_FAIL", "0", None)),
        *(("RUNNING", "0", None), ("CANCELLED", "9", None)),
    ],
)
def test_an_exit_code_is_that_of_the_command(state: str, status: str, code: int | None) -> None:
    assert job(State=state, exit_code=status).code == code


def test_what_somebody_cancelled_is_told() -> None:
    assert job(State="CANCELLED").cancelled
    assert not job(State="FAILED").cancelled


def test_how_a_job_ended_is_told_with_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "a-7.log").write_text("first\nno such corpus\nsrun: error: n1: task 0: Exited\n\n")
    (tmp_path / "b-7.log").write_text("srun: error: n1: task 0: Exited\n")
    failed = {"State": "FAILED", "exit_code": "512", "Reason": "NonZeroExitCode"}
    output = f"{tmp_path}/%x-%j.log"
    told = job(**failed, Name="a", STDOUT=output).why
    assert told == f"NonZeroExitCode; {tmp_path}/a-7.log ends with: no such corpus"
    assert job(**failed, Name="b", STDOUT=output).why.endswith("b-7.log is empty")
    told = job(State="NODE_FAIL", Name="c", STDOUT="/d/%x").why
    assert told == "NODE_FAIL; its output is in /d/c"
    assert job(State="COMPLETED").why == ""
    assert job(State="CANCELLED").why == ""


def test_jobs_of_others_are_left_alone() -> None:
    table = "\n".join(
        (
            row(Comment="(null)"),
            row(Comment=""),
            row(Comment="islands:first:ffffffff/site-0"),
            row(JobID="9", Comment=f"{OF.label}/site-1"),
            "",
        )
    )
    assert [(found.name, found.job) for found in read_jobs(table, OF)] == [("site-1", "9")]


REFUSED = (
    "sbatch: error: invalid partition specified: nope\n"
    "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
)
ABSENT = (
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller "
    "(connect failure)\n"
)
FULL = (
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
    "limit, user's size and/or time limits)\n"
)
NO_MUNGE = "sbatch: error: Batch job submission failed: Protocol authentication error\n"


def test_a_refusal_is_told_in_slurms_words() -> None:
    error = refusal("sbatch", REFUSED)
    assert isinstance(error, Unplaceable)
    assert str(error) == (
        "slurm refuses: invalid partition specified: nope; Batch job submission failed: Invalid "
        "partition name specified"
    )
    assert "sbatch failed without a word" in str(refusal("sbatch", ""))


@pytest.mark.parametrize("told", [ABSENT, FULL, NO_MUNGE])
def test_what_may_pass_is_asked_again(told: str) -> None:
    error = refusal("sbatch", told)
    assert isinstance(error, EngineAway)
    assert not isinstance(error, UserError)


def test_a_host_without_slurm_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    engine = Slurm(OF, {})
    with pytest.raises(Unplaceable, match="needs the command sbatch, which this host does not"):
        engine.place(island())
    with pytest.raises(Unplaceable, match="needs the command squeue"):
        engine.list()
