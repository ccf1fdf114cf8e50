"""Learners that join in the course of a trial."""

import pytest

from islands.lab.study.cells import Join
from islands.lab.study.trial import SPENT, decaying, hosts_of, play, stages_of
from islands.lab.world.world import LearnerHost
from islands.model.jax_workload import JaxWorkload
from tests.lab.study.regression import Regression
from tests.lab.study.test_trial import trial

SHORT = 1600
"""Tokens."""
HOSTS = {f"learner-{index}": LearnerHost(0.1) for index in range(7)}


def test_stages_lie_between_joins() -> None:
    stages = stages_of(HOSTS, [Join(4, 0.75), Join(1, 0.5)])
    assert [(stage.begins, stage.share, len(stage.hosts)) for stage in stages] == [
        (0.0, 0.5, 2),
        (0.5, 0.25, 3),
        (0.75, 0.25, 7),
    ]
    assert [stage.tokens_per_s for stage in stages] == pytest.approx([160, 240, 560])


@pytest.mark.quick("1-0.75")
@pytest.mark.parametrize(("extra", "relative"), [(1, 0.75), (3, 0.625)])
def test_whoever_joins_shortens_the_time_to_a_budget(extra: int, relative: float) -> None:
    """One learner for half of the tokens, then one or three more: 1/2 + 1/2 / (1 + x).

    Steps are long, for quotas of tokens are given out for a minute at least.
    """
    cell: dict[str, object] = {"learners": 1, "noise": 0.0, "step_s": 2.0}
    alone = play(trial(cell, tokens=SHORT))
    joined = play(trial({**cell, "joins": [{"learners": extra, "at_share": 0.5}]}, tokens=SHORT))
    assert (joined.tokens, joined.reason) == (SHORT, SPENT)
    assert joined.virtual_s / alone.virtual_s == pytest.approx(relative, abs=0.03)
    assert joined.figures["loss"] < 0.2 * joined.curve[0][2]["loss"]


def test_the_rate_decays_over_the_steps_that_are_left() -> None:
    told = trial({"learners": 1, "joins": [{"learners": 3, "at_share": 0.5}]})
    hosts = {f"learner-{index}": LearnerHost(0.1, batch_tokens=4) for index in range(4)}
    assert decaying(told, hosts).total_steps == 500


def test_machines_are_those_of_all_that_ever_train() -> None:
    cell = {"learners": 2, "speeds": [1, 3], "joins": [{"learners": 2, "at_share": 0.5}]}
    told = trial(cell)
    hosts = hosts_of(told, JaxWorkload(Regression()))
    assert list(hosts) == [f"learner-{index}" for index in range(4)]
    assert [host.step_s for host in hosts.values()] == pytest.approx([0.1, 0.3, 0.1, 0.1])
