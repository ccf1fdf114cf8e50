"""Engines for a host without a cluster: an island is a group of processes of this host.

Its job is named by the number of that group, so `kill -STOP -JOB` suspends an island, and
`kill -CONT -JOB` lets it go on. What it says is in a file of its name in the folder `logs`. An
engine knows of its jobs as long as the hub lives.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from islands.engines.engine import EngineAway, Island, Job, JobState, RunMark, check_settings
from messaging.clock import MonotonicClock


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
        if self._jobs[job][1].poll() is None:
            os.killpg(int(job), signal.SIGKILL if at_once else signal.SIGTERM)

    def list(self) -> Sequence[Job]:
        found = [(name, job, each.poll()) for job, (name, each) in self._jobs.items()]
        states = {True: JobState.RUNNING, False: JobState.ENDED}
        return [Job(name, job, states[code is None], code=code) for name, job, code in found]

    def describe(self, island: Island) -> str:
        return island.script(exports=True)


class Spot(Here):
    """Groups of processes that are killed after `stay_s` on average, as machines of a cloud are.

    After that there is no machine for the island for `away_s` on average. Both are drawn from
    `seed`, for each attempt to place an island.
    """

    def __init__(self, of: RunMark, settings: Mapping[str, str]) -> None:
        check_settings("spot", settings, ("logs", "stay_s", "away_s", "seed"))
        super().__init__(of, {key: settings[key] for key in settings if key == "logs"})
        self._mean_s = float(settings.get("stay_s", "40")), float(settings.get("away_s", "5"))
        self._seed = settings.get("seed", "0")
        self._ends: dict[str, tuple[str, float, float]] = {}
        self._none_until_s: dict[str, float] = {}
        self._clock = MonotonicClock()

    def place(self, island: Island) -> str:
        now_s = self._clock.now_s()
        if now_s < self._none_until_s.get(island.name, 0.0):
            raise EngineAway("there is no machine left")
        drawn = random.Random(f"{self._seed}/{island.name}.{island.attempt}")
        stay_s, away_s = (mean_s * drawn.expovariate(1) for mean_s in self._mean_s)
        job = super().place(island)
        self._ends[job] = island.name, now_s + stay_s, away_s
        return job

    def list(self) -> Sequence[Job]:
        now_s = self._clock.now_s()
        for job, (name, ends_s, away_s) in list(self._ends.items()):
            ended = self._jobs[job][1].poll() is not None
            if now_s >= ends_s and not ended:
                self._none_until_s[name] = ends_s + away_s
                self.end(job, at_once=True)
            if now_s >= ends_s or ended:
                del self._ends[job]
        return super().list()
