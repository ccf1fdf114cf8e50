"""What learners tell of their steps, for people, agrees with the ledger."""

import pytest

from islands.lab.world.world import LearnerHost
from islands.protocol.messages.control import StepFigures
from islands.protocol.settings.choices import Adoption
from islands.protocol.settings.run import RunSettings
from tests.lab.world.worlds import finished, ledger, lived

HOSTS = {"ana": LearnerHost(), "ben": LearnerHost(step_s=0.03), "cleo": LearnerHost(step_s=0.4)}


@pytest.mark.parametrize("budget", [500, 3000, 3007])
def test_at_the_end_their_sum_is_what_the_ledger_processed(budget: int) -> None:
    told: dict[str, StepFigures] = {}
    settings = RunSettings(interval_steps=8, fragments=4, budget_tokens=budget)
    world = lived(settings, HOSTS, finished, seed=2, figures=told.__setitem__)
    assert sum(figures.tokens for figures in told.values()) == ledger(world)[0]["processed"]
    assert sum(figures.steps for figures in told.values()) > 0


def test_what_is_carried_on_is_not_thrown_away() -> None:
    overwritten, applied = {}, {}
    for adoption in Adoption:
        settings = RunSettings(interval_steps=8, fragments=4, budget_tokens=4000, adoption=adoption)
        world = lived(settings, HOSTS, finished, seed=2)
        (row, *_) = ledger(world)
        overwritten[adoption], applied[adoption] = row["overwritten"], row["applied"]
        assert row["processed"] == row["applied"] + row["overwritten"] + row["late"]
    assert overwritten[Adoption.OVERWRITE] > 100
    assert overwritten[Adoption.DELAY_CORRECTED] == 0
    assert applied[Adoption.DELAY_CORRECTED] == 4000
