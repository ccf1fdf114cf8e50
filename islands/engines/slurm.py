"""Slurm: an island is a batch job, whose one step runs the island's command once on each host.

docs/engines/slurm.md tells who starts what again. The batch script only starts `srun`: Slurm
signals the step. A learner that leaves by a signal ends with exit code 0, so the shell around it
remembers the signal and ends with 143. Secrets travel in the environment of `sbatch`, which exports
it to the job. Of the hub's own variables a job is given those by which programs are found
(`GIVEN`), and those that its entry names.
"""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from islands.engines import engine
from islands.engines.engine import run_command, said_by
from islands.protocol.errors import DONE
from islands.run.hosting.process_output import TOLD_CHARACTERS

OPTIONS = (
    *("account", "chdir", "constraint", "exclude", "exclusive", "gres", "licenses", "nice"),
    *("nodelist", "output", "partition", "qos", "reservation", "time"),
)
"""Options of `sbatch` that settings may give; they go before what an island's needs say."""

KEPT = ("SLURM_CONF", "SLURM_JWT")
GIVEN = (
    *KEPT,
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
    *("MANPATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "LOADEDMODULES", "BASH_ENV"),
    "HF_HOME",
)
GIVEN_BEGINNINGS = ("SBATCH_", "LC_", "CONDA_", "MODULE", "LMOD_", "_LM", "__LMOD", "XDG_CACHE_")
"""Names of variables of the hub that an island's job is given, and beginnings of such names: where
programs and libraries are found, and nothing else, as a hub's environment holds keys to clouds."""
LEFT_OUT = ("SLURM_", "SQUEUE_", "SCANCEL_")
"""Beginnings of the names of variables that would change what commands of Slurm do."""

ASKED_TO_END = 143
LEAVE_S = 60
"""Time before a job's end at which its island leaves; and for other hosts, once one has ended."""

FIELDS = {
    "JobID": 24,
    "State": 24,
    "RestartCnt": 12,
    "exit_code": 12,
    "Reason": 120,
    "NodeList": 400,
    "Comment": 400,
    "Name": 200,
    "STDOUT": 1024,
}
"""Columns of `squeue --Format` with their widths, known to Slurm 15.08 and later."""

TAIL_BYTES = 8192
SLURMS_OWN = ("srun: ", "slurmstepd")
"""Beginnings of lines in a job's output that its command has not written."""

STATES: Mapping[str, engine.JobState] = {
    **dict.fromkeys(
        ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
        engine.JobState.WAITING,
    ),
    "COMPLETING": engine.JobState.ENDING,
    **dict.fromkeys(
        ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        engine.JobState.ENDED,
    ),
    **dict.fromkeys(
        ("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT", "LAUNCH_FAILED"), engine.JobState.ENDED
    ),
}
"""What each of Slurm's states means; a job in any other one holds its nodes.

Slurm shows a job that it starts again as COMPLETING and PENDING, so one that is shown as NODE_FAIL
or PREEMPTED has ended for good, where the site requeues no jobs.
"""

AWAY = (
    *("unable to contact", "timed out", "connection refused", "zero bytes were transmitted"),
    *("temporarily unable", "try again", "munge", "authentication error", "not available now"),
    *("accounting/qos policy", "submitjob", "submit limit", "backup controller"),
)
"""What Slurm says while it is away, or where it has no room for another job just now."""


class Slurm:
    """Places islands as batch jobs; settings are further options of `sbatch`."""

    poll_s = 10.0

    def __init__(self, of: engine.RunMark, settings: Mapping[str, str]) -> None:
        engine.check_settings("slurm", settings, OPTIONS)
        self._of = of
        self._settings = dict(settings)

    def place(self, island: engine.Island) -> str:
        words = submission(island, self._settings)
        printed = ask(words, batch_script(island), {**given(os.environ), **island.environment})
        return printed.strip().partition(";")[0]  # the name of its cluster may follow

    def end(self, job: str, *, at_once: bool) -> None:
        """Cancel a job; `at_once` kills the island's processes before."""
        if at_once:  # without a step, scancel with SIGKILL is scancel: SIGTERM comes first
            _cancel("--signal=KILL", f"{job}.0")
        _cancel(job)

    def list(self) -> Sequence[engine.Job]:
        """Return the run's jobs, ended ones for as long as Slurm keeps them (MinJobAge)."""
        columns = ",".join(f"{field}:{width}" for field, width in FIELDS.items())
        who = f"--user={os.getuid()}"
        words = ("squeue", "--noheader", "--all", "--states=all", who, f"--Format={columns}")
        return read_jobs(ask(words, "", environment(os.environ)), self._of)

    def describe(self, island: engine.Island) -> str:
        shown = {
            name: "..." if name in island.secrets else island.environment[name]
            for name in island.environment
        }
        variables = [f"{name}={shlex.quote(value)}" for name, value in shown.items()]
        command = shlex.join(submission(island, self._settings))
        return f"{' '.join((*variables, command))} <<'END'\n{batch_script(island)}END\n"


# --- what Slurm is given ------------------------------------------------------------------------


def submission(island: engine.Island, settings: Mapping[str, str]) -> list[str]:
    """Return the command that submits an island's job, whose script is its standard input."""
    needs = island.needs
    if needs.image is not None:
        raise engine.Unplaceable(
            f"image is {needs.image!r}, but the engine slurm starts no containers: let command "
            "start one, by the site's own means"
        )
    options = {
        "job-name": island.job_name,
        "comment": mark_of(island),
        "nodes": str(needs.hosts),
        "ntasks-per-node": "1",
        "signal": f"TERM@{LEAVE_S}",
        "open-mode": "append",
        "output": "%x-%j.log",
        "export": "ALL",
        **_resources(island),
        **settings,
    }
    words = [
        f"--{name}" if value == "true" else f"--{name}={value}" for name, value in options.items()
    ]
    return ["sbatch", "--parsable", "--requeue", *words]


def _resources(island: engine.Island) -> dict[str, str]:
    needs, found = island.needs, dict[str, str]()
    if needs.accelerator is not None:
        kind, number = needs.accelerator
        found["gres"] = f"gpu:{number}" if kind == "gpu" else f"gpu:{kind}:{number}"
    if needs.cpus is not None:
        found["cpus-per-task"] = str(math.ceil(needs.cpus))
    if needs.memory_gib is not None:
        found["mem"] = f"{math.ceil(needs.memory_gib * 1024)}M"
    if needs.region is not None:
        found["constraint"] = needs.region
    return found


def batch_script(island: engine.Island) -> str:
    needs = island.needs
    step = ["srun", "--kill-on-bad-exit=0", f"--wait={LEAVE_S}"]
    if needs.cpus is not None:  # srun does not take it from sbatch
        step.append(f"--cpus-per-task={math.ceil(needs.cpus)}")
    lines = ["#!/bin/bash"]
    if needs.hosts > 1:
        lines += [
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            'node=$(scontrol --oneliner show node "$first" | grep -o "NodeAddr=[^ ]*")',
            f"export {engine.ADDRESS}=${{node#NodeAddr=}}",
        ]
    return (
        "\n".join([*lines, f"exec {shlex.join(step)} bash -c {shlex.quote(_on_host(island))}"])
        + "\n"
    )


def _on_host(island: engine.Island) -> str:
    """Return what each host runs: its command in a shell that remembers a signal to leave."""
    rank = [f"export {engine.RANK}=$SLURM_PROCID"] if island.needs.hosts > 1 else []
    return "\n".join(
        [
            *rank,
            f"trap asked={ASKED_TO_END} TERM",  # Slurm signals all processes of a step
            "(",
            island.script().rstrip("\n"),
            ")",
            "code=$?; exit $((code ? code : asked))",
        ]
    )


def mark_of(island: engine.Island) -> str:
    """Return the comment of an island's job, by which it is found again."""
    return f"{island.of.label}/{island.name}"


def environment(mine: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the hub's process that commands of Slurm are given."""
    return {k: v for k, v in mine.items() if k in KEPT or not k.startswith(LEFT_OUT)}


def given(mine: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the hub's process that an island's job is given."""
    return {k: v for k, v in mine.items() if k in GIVEN or k.startswith(GIVEN_BEGINNINGS)}


# --- what Slurm says ------------------------------------------------------------------------------


def read_jobs(table: str, of: engine.RunMark) -> list[engine.Job]:
    """Return the jobs of a run in what `squeue` printed, in its order."""
    rows = [_columns(line) for line in table.splitlines() if line.strip()]
    prefix = f"{of.label}/"
    return [
        _job(row, row["Comment"][len(prefix) :])
        for row in rows
        if row["Comment"].startswith(prefix)
    ]


def _columns(line: str) -> dict[str, str]:
    found, begin = dict[str, str](), 0
    for field, width in FIELDS.items():
        found[field] = line[begin : begin + width].strip()
        begin += width
    return found


def _job(row: Mapping[str, str], name: str) -> engine.Job:
    shown = row["State"]
    state = STATES.get(shown, engine.JobState.RUNNING)
    code = _exit_code(shown, int(row["exit_code"] or 0))
    cancelled = shown == "CANCELLED"
    why = "" if row["Reason"] in ("None", "(null)") else row["Reason"]
    if state is engine.JobState.ENDED and code != DONE and not cancelled:
        output = row["STDOUT"].replace("%x", row["Name"]).replace("%j", row["JobID"])
        why = f"{why or shown}; {_output_in_words(output)}"
    where = "" if row["NodeList"] == "(null)" else row["NodeList"]
    return engine.Job(
        *(name, row["JobID"], state, where, int(row["RestartCnt"] or 0), why, code, cancelled)
    )


def _exit_code(shown: str, status: int) -> int | None:
    """Return the exit code in a status of wait(2), where it is that of the command."""
    its_own = shown in ("COMPLETED", "FAILED") and not status & 0x7F
    return status >> 8 if its_own else None


def _output_in_words(output: str) -> str:
    """Return where a job's output is, with its last line, if it can be read here."""
    try:
        with Path(output).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return f"its output is in {output}"
    said = [line.strip() for line in lines if line.strip() and not line.startswith(SLURMS_OWN)]
    return f"{output} ends with: {said[-1][:TOLD_CHARACTERS]}" if said else f"{output} is empty"


def ask(words: Sequence[str], text: str, variables: Mapping[str, str]) -> str:
    """Run a command of Slurm with a text as its standard input; return what it printed."""
    ended = run_command("slurm", words, text, variables)
    if ended.returncode:
        raise refusal(words[0], ended.stderr)
    return ended.stdout


def refusal(command: str, said: str) -> engine.EngineAway | engine.Unplaceable:
    words = said_by(command, said)
    if any(sign in words.lower() for sign in AWAY):
        return engine.EngineAway(f"slurm has no answer or no room now: {words}")
    return engine.Unplaceable(f"slurm refuses: {words}")


def _cancel(*words: str) -> None:
    try:
        ask(("scancel", *words), "", environment(os.environ))
    except engine.Unplaceable as error:
        gone = ("invalid job id", "already complet", "invalid job step")
        if not any(sign in str(error).lower() for sign in gone):
            raise
