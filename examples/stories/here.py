"""An engine for a host without a cluster: an island is a group of processes of this host.

Its job is named by the number of that group, so `kill -STOP -JOB` suspends an island, and
`kill -CONT -JOB` lets it go on. What it says is in a file beside its run's, by its name. The engine
knows of its jobs as long as the hub lives.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from islands.engines.engine import Island, Job, JobState, RunMark, check_settings


class Here:
    """Groups of processes; the setting `logs` is the folder of what they say."""

    poll_s = 0.5

    def __init__(self, of: RunMark, settings: Mapping[str, str]) -> None:
        check_settings("here", settings, ("logs",))
        self._logs = Path(settings.get("logs", "logs"))
        self._jobs: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}

    def place(self, island: Island) -> str:
        self._logs.mkdir(parents=True, exist_ok=True)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with (self._logs / f"{island.name}.log").open("ab") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", island.script()],
                env={**os.environ, "PATH": path, "PJRT_NPROC": "1", **island.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._jobs[str(process.pid)] = island.name, process
        return str(process.pid)

    def end(self, job: str, *, at_once: bool) -> None:
        with suppress(ProcessLookupError):
            os.killpg(int(job), signal.SIGKILL if at_once else signal.SIGTERM)

    def list(self) -> Sequence[Job]:
        found = [(name, job, each.poll()) for job, (name, each) in self._jobs.items()]
        states = {True: JobState.RUNNING, False: JobState.ENDED}
        return [Job(name, job, states[code is None], code=code) for name, job, code in found]

    def describe(self, island: Island) -> str:
        return island.script(exports=True)
