"""Slow steps, copies and links: merges come as often as one computes by hand; nothing is lost.

A part of the table in `docs/slowness.md`, which `python -m tests.benchmarks.slowness` prints.
"""

import pytest

from islands.protocol.settings.run import RunSettings
from tests.benchmarks.slowness import Cell, computed_s, play
from tests.rounds.model import Link, Model

CELLS = [
    Cell(0.01, 0.1, 0.001, 1, 24),
    Cell(0.01, 5.0, 0.001, None, 1),
    Cell(1.0, 0.1, 0.001, None, 48),
    Cell(1.0, 5.0, 0.001, None, 6),
    Cell(1.0, 5.0, 1.0, 2, 1),
    Cell(1.0, 0.1, 6.0, 1, 1),
    Cell(1.0, 1.0, 30.0, None, 1),
    Cell(40.0, 0.1, 30.0, None, 24),
    Cell(40.0, 5.0, 1.0, None, 6),
    Cell(300.0, 5.0, 30.0, 1, 1),
    Cell(300.0, 1.0, 0.001, None, 6),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_merges_come_as_computed(cell: Cell) -> None:
    found = play(cell)
    assert found.deviation <= 0.1, f"{found.between_s} s, computed {computed_s(cell)}"
    assert found.participation >= (cell.quorum or 1) / 3 - 0.01
    assert (found.killed, found.lost) == (0, 0)


def test_one_way_six_seconds_and_one_fragment_merge() -> None:
    """Timeouts of ten seconds would give up every round: what is measured stretches them."""
    model = Model(RunSettings(interval_steps=24, fragments=1), [0.1] * 2, link=Link(latency_s=6.0))
    model.run(400.0)
    assert len(model.merges()) >= 20
    assert model.count("abandoned") <= 1
    assert model.count("nothing_merged") == 0


@pytest.mark.parametrize("latency_s", [0.001, 30.0])
@pytest.mark.parametrize("step_s", [40.0, 300.0])
def test_a_stop_with_slow_steps_loses_nothing(step_s: float, latency_s: float) -> None:
    settings = RunSettings(interval_steps=24, fragments=4)
    link = Link(latency_s=latency_s, copy_s=2 * step_s)
    model = Model(settings, [step_s] * 3, link=link, tick_s=step_s / 4)
    model.run(40.5 * step_s)
    before = [row.overwritten for row in model.syncer.ledger_rows()]
    model.stop("enough")
    model.run(1e5)
    assert model.finished == "enough"
    rows = model.syncer.ledger_rows()
    steps = sum(compute.steps for compute in model.computes.values())
    assert [row.processed for row in rows] == [100 * steps] * 4
    assert [row.lost + row.pending for row in rows] == [0] * 4
    assert max(row.overwritten for row in rows) <= max(before) + 3 * 100 * 8
