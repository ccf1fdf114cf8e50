"""An engine of somebody else, in one file: islands are processes of this host, jobs are files.

What it knows survives it, as a cluster's knowledge does: a file for each job holds its process id,
and another one its exit code, which the job itself writes.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from islands.engines.engine import EngineAway, Island, Job, JobState, RunMark
from islands.run.hosting.process_identity import facts


class FolderEngine:
    """Processes by job, in a folder. A file `away` in it has the engine not answer."""

    poll_s = 0.2

    def __init__(self, of: RunMark, settings: Mapping[str, str]) -> None:
        self._of = of
        self._folder = Path(settings["folder"])

    def place(self, island: Island) -> str:
        self._answer()
        number = f"{island.name}.{len(list(self._folder.glob(f'{island.name}.*.job')))}"
        code = self._folder / f"{number}.code"
        script = f"({island.script()})\necho $? > {code}.new && mv {code}.new {code}"
        with (self._folder / f"{number}.log").open("wb") as log:
            process = subprocess.Popen(
                ["/bin/bash", "-c", script],
                env={**os.environ, **island.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        told = {"name": island.name, "mark": self._of.label, "pid": process.pid}
        (self._folder / f"{number}.job").write_text(json.dumps(told))
        return number

    def end(self, job: str, *, at_once: bool) -> None:
        self._answer()
        told = json.loads((self._folder / f"{job}.job").read_text())
        (self._folder / f"{job}.ended").touch()
        for process in _group(told["pid"]):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL if at_once else signal.SIGTERM)

    def list(self) -> Sequence[Job]:
        self._answer()
        found = []
        for file in sorted(self._folder.glob("*.job")):
            told = json.loads(file.read_text())
            if told["mark"] == self._of.label:
                found.append(self._job(file.stem, told))
        return found

    def describe(self, island: Island) -> str:
        return island.script(exports=True)

    def _job(self, number: str, told: dict[str, object]) -> Job:
        code = self._folder / f"{number}.code"
        with suppress(ChildProcessError):
            os.waitpid(int(str(told["pid"])), os.WNOHANG)
        if code.exists():
            asked = (self._folder / f"{number}.ended").exists()
            value = int(code.read_text())
            return Job(str(told["name"]), number, JobState.ENDED, code=value, cancelled=asked)
        if facts(int(str(told["pid"]))) is None:
            return Job(str(told["name"]), number, JobState.ENDED, why="it is gone")
        return Job(str(told["name"]), number, JobState.RUNNING, where="here")

    def _answer(self) -> None:
        if (self._folder / "away").exists():
            raise EngineAway("the folder engine does not answer: it is away")


def _group(leader: int) -> list[int]:
    """Return the processes of a session but for its shell, which writes their exit code."""
    found = subprocess.run(
        ["/bin/ps", "-o", "pid=", "-g", str(leader)], capture_output=True, check=False, text=True
    )
    return [int(word) for word in found.stdout.split() if int(word) != leader]
