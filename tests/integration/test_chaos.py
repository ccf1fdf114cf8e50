"""A scenario on real processes: what is struck comes back, and the history keeps every promise."""

from pathlib import Path

import pytest

from islands.cli.__main__ import main

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

QUICK = Path(__file__).parents[2] / "examples" / "scenarios" / "quick.yaml"
TIMED = ("gap_most_s", "step_rate_least", "back_most_s")


@pytest.mark.long("tests/lab/world/test_faults.py::test_seed_keeps_every_promise")
def test_five_faults_break_no_promise(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    untimed = [word for name in TIMED for word in (f"--{name}", "null")]
    code = main(["lab", "chaos", str(QUICK), "--folder", str(tmp_path / "run"), *untimed])
    told = capfd.readouterr().out
    assert code == 0, told
    assert "Every promise was kept under 5 faults" in told
