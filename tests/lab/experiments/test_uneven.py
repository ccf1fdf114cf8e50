"""Learners of unlike speed: what waiting costs in time, and what not waiting costs in tokens."""

from dataclasses import replace

import pytest

from islands.lab.experiments import uneven
from islands.lab.experiments.fleet import play
from islands.lab.experiments.formulas import goodput_of_waiting
from islands.lab.settings.fleets import UnevenOptions, patient
from islands.protocol.errors import SettingsError

OPTIONS = UnevenOptions(
    run=replace(patient(), interval_steps=6, fragments=6), speeds=(1.0, 1.0, 1.18, 1.18), steps=24
)


def test_waiting_for_the_slowest_costs_what_the_formula_says() -> None:
    assert goodput_of_waiting((1.0, 1.5), 0.0) == pytest.approx(1.25 / 1.5)
    assert goodput_of_waiting((1.0, 1.0), 0.1) == pytest.approx(1 / (1 + 0.1 / 3.14159265**0.5))
    assert goodput_of_waiting((1.0,) * 4 + (1.18,) * 4, 0.1) == pytest.approx(0.84, abs=0.01)


def test_learners_wait_in_lock_step_and_never_otherwise() -> None:
    cells = uneven.cells_of(OPTIONS)
    keys = [key for key in cells if key[0].adoption == "overwrite" and "K=4" not in key[0].merge]
    found = {key: play(cells[key]) for key in keys}
    lock, alone, grace = found.values()
    formula = goodput_of_waiting(OPTIONS.speeds, OPTIONS.noise)
    assert lock.figures.goodput == pytest.approx(formula, abs=0.05)
    for decoupled in (alone, grace):
        assert decoupled.figures.goodput == pytest.approx(1.0, abs=0.005)
    assert alone.training.per_merge == pytest.approx(1.0)
    assert grace.training.per_merge > 3.5
    assert alone.training.yield_share < 0.5 < grace.training.yield_share
    told = uneven.table(OPTIONS, found)
    assert "wait for all at each step" in told
    assert [*uneven.figures_of(OPTIONS, found)] == ["lock_step_goodput_by_formula", "runs"]


def test_carrying_on_loses_no_tokens_of_those_that_are_merged() -> None:
    cells = uneven.cells_of(OPTIONS)
    (kept,) = (
        play(cell)
        for (row, _), cell in cells.items()
        if row.adoption == "delay_corrected" and row.merge.startswith("K=4")
    )
    assert kept.training.yield_share == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"speeds": (1.0,)}, "speeds has 1 learners; it must have from 2"),
        ({"speeds": (1.0, 0.0)}, "speeds is 0.0; it must be above 0"),
        ({"noise": -0.1}, "noise is -0.1; it must be at least 0"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"seeds": (1, 1)}, r"seeds is \[1, 1\]; it must be unlike whole numbers"),
        ({"seeds": ()}, r"seeds is \[\]"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        UnevenOptions(**options)  # type: ignore[arg-type]
