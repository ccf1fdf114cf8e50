"""An injection does to the processes of a folder what it is told, or says that nobody is there."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from islands.lab.faults.fault import Injection
from islands.lab.faults.fleet import Fleet, HubSettings
from islands.lab.faults.injections import NOBODY, Targets, carry_out
from islands.lab.faults.schedule import injections_of
from islands.lab.settings.chaos import ChaosOptions
from islands.run.hosting.process_identity import MARK, mark_of
from islands.settings.run_spec import RunSpec


def injection(**fault: object) -> Injection:
    return injections_of(ChaosOptions(faults={"one": {"who": "learner-1", **fault}}))[0]


def targets(folder: Path) -> Targets:
    return Targets(Fleet(folder, HubSettings(RunSpec(), 2)))


@pytest.fixture(name="victim")
def _victim(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for ever, marked as learner-1."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    mark = {MARK: mark_of("learner-1", tmp_path)}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=mark,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the kernel shows no environment before
        yield process
        process.kill()


async def test_a_killed_process_is_gone(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    assert await carry_out(targets(tmp_path), injection(fault="kill")) == ""
    assert victim.wait(10.0) == -9
    assert await carry_out(targets(tmp_path), injection(fault="kill")) == NOBODY


@pytest.mark.parametrize("kind", ["freeze", "straggle"])
async def test_a_frozen_process_lives_on(
    tmp_path: Path, victim: subprocess.Popen[bytes], kind: str
) -> None:
    running = asyncio.create_task(carry_out(targets(tmp_path), injection(fault=kind, for_s=0.3)))
    async with asyncio.timeout(10.0):
        while state_of(victim.pid) != "T":  # noqa: ASYNC110  the kernel tells nobody
            await asyncio.sleep(0.002)
    assert await running == ""
    assert state_of(victim.pid) != "T"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
