"""A hub among sixty-four real learners, over websockets."""

from pathlib import Path

import msgspec
import pytest

from tests.integration.programs import ROOT, open_room

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LEARNERS = 64
PATIENCE = 4
"""Scales every timeout: the learners of this test share a few cores with other tests."""


class Figures(msgspec.Struct):
    """What the benchmark prints."""

    joins: int
    contributed_at_first: int
    evictions: int
    merges: int
    ends: list[int]


@pytest.mark.long("tests/integration/test_processes.py::test_a_run_spends_its_budget_to_the_token")
async def test_a_crowd_joins_contributes_and_leaves(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        words = ["--learners", LEARNERS, "--all", "--patience", PATIENCE]
        times = ["--seconds", 3, "--step_s", 0.5]
        program = room.start("tests.benchmarks.crowd", *words, *times, cwd=ROOT)
        await room.ended(program, 250.0)
        figures = msgspec.json.decode(program.out.splitlines()[-1], type=Figures)
    assert figures.joins == figures.contributed_at_first == LEARNERS
    assert (figures.evictions, figures.ends) == (0, [0, 0])
    assert figures.merges > 0
