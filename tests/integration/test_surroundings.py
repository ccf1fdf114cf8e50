"""Machines on which people work: without a home, with output that is closed, full or not UTF-8."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.programs import ROOT

pytestmark = pytest.mark.integration

RUN = (
    *("-m", "islands.cli", "run", "--task", "islands.lab.toys.toy_workload:Sleeping"),
    *("--task_settings.step_s", "0.02", "--task_settings.megabytes", "0.25", "--learners", "1"),
    *("--run.budget_s", "1", "--listen", "127.0.0.1:0", "--folder"),
)
SHELL = 'exec "$@"'
SURROUNDINGS: dict[str, tuple[dict[str, str], str]] = {
    "no home": ({"HOME": "/dev/null", "XDG_CACHE_HOME": ""}, SHELL),
    "ascii": ({"PYTHONIOENCODING": "ascii"}, SHELL),
    "latin-1": ({"PYTHONIOENCODING": "latin-1"}, SHELL),
    "output closed": ({}, f"{SHELL} >&-"),
    "output and errors closed": ({}, f"{SHELL} >&- 2>&-"),
    "input closed": ({}, f"{SHELL} <&-"),
    "output full": ({}, f"{SHELL} >/dev/full"),
    "output and errors full": ({}, f"{SHELL} >/dev/full 2>&1"),
    "reader gone": ({}, f"{SHELL} | true; exit ${{PIPESTATUS[0]}}"),
}


@pytest.mark.quick("ascii", "output closed")
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_a_run_ends_well_whatever_becomes_of_its_output(name: str, tmp_path: Path) -> None:
    told, shell = SURROUNDINGS[name]
    ended = subprocess.run(
        ["bash", "-c", shell, "bash", sys.executable, *RUN, str(tmp_path / "run")],  # noqa: S607
        env={**os.environ, "PYTHONPATH": str(ROOT), **told},
        cwd=tmp_path,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a namespace of processes")
def test_the_first_process_of_a_container_ends_at_sigterm() -> None:
    learner = (sys.executable, "-m", "islands.learner", "--supervisor", "127.0.0.1:9")
    inside = ("unshare", "--pid", "--fork", "--kill-child", *learner)
    with subprocess.Popen(inside, stderr=subprocess.PIPE, cwd=ROOT) as outer:
        assert outer.stderr is not None
        assert b"waiting for" in outer.stderr.readline()
        first = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0]
        os.kill(int(first), 15)
        assert outer.wait(10) == 128 + 15
