"""A run that goes on for days holds no more at its end than before."""

from pathlib import Path

import pytest

from messaging.simulation.virtual_time import run_virtual
from tests.benchmarks.thirty_days import DAY_S, TAPE_BYTES, TAPE_FILES, LongRun

pytestmark = pytest.mark.simulation

DAYS = 1.0
STEP_S = 150.0


def test_a_day_of_comings_and_goings_leaves_nothing_behind(tmp_path: Path) -> None:
    """Members die and return, guests come and go; objects, journal and tape stay as they were.

    Thirty days are run by `python -m tests.benchmarks.thirty_days`.
    """
    run = LongRun(tmp_path, STEP_S)
    run_virtual(run.live(DAYS, every_days=DAYS / 3), limit_s=2 * DAY_S)
    early, late = run.rows[1], run.rows[-1]
    assert late.starts > early.starts + 5
    assert late.merges > early.merges
    assert late.objects < 1.02 * early.objects
    assert late.journal_bytes < 1.1 * early.journal_bytes
    assert late.tape_bytes < TAPE_FILES * TAPE_BYTES + 2**16
