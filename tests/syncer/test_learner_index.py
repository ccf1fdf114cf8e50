"""What the syncer keeps about all learners, and that an event costs the same among many as few."""

import random
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from islands.protocol.identities import LearnerName
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.members import Witness
from tests.benchmarks.synthetic_fleet import BATCH_TOKENS, Fleet

T = TypeVar("T")

FEW, MANY = 8, 64
MEASURED_S = 4.0


def test_a_witness_answers_as_if_everybody_were_asked(seed: int) -> None:
    """Learners come, go and change in any order; the answer is that of asking all of them."""
    chance = random.Random(seed)
    pool = [LearnerName(f"learner-{index}") for index in range(8)]
    true_of: dict[LearnerName, bool] = {}
    witness = Witness()
    for _ in range(200):
        name = chance.choice(pool)
        if chance.random() < 0.3:
            true_of.pop(name, None)
        else:
            true_of[name] = chance.random() < 0.2
        found = witness.match(sorted(true_of), lambda name: true_of.get(name, False))
        assert found == any(true_of.values())


def test_a_condition_that_ends_for_one_after_the_other_costs_a_visit_each() -> None:
    """However many learners there are, and whatever their order: all are visited twice at most."""
    names = [LearnerName(f"learner-{index:03d}") for index in range(MANY)]
    order = random.Random(1).sample(names, len(names))
    stepping, visits, witness = dict.fromkeys(names), [0], Witness()

    def steps(name: LearnerName) -> bool:
        visits[0] += 1
        return name in stepping

    for name in order:
        del stepping[name]
        assert witness.match(names, steps) == bool(stepping)
    assert visits[0] <= 4 * MANY


# ------------------------------------------------------------------------------------------- work


class Counted(dict[LearnerName, Any]):
    """A dictionary that counts how many of its values were looked at."""

    def __init__(self, visits: list[int]) -> None:
        """Empty; `visits` has one number, to which looks are added."""
        super().__init__()
        self._visits = visits

    def __getitem__(self, name: LearnerName) -> Any:  # noqa: ANN401  the tests count looks at anything
        """One look."""
        self._visits[0] += 1
        return super().__getitem__(name)

    def get(self, name: LearnerName, default: Any = None) -> Any:  # noqa: ANN401  as above
        """One look."""
        self._visits[0] += 1
        return super().get(name, default)

    def __iter__(self) -> Iterator[LearnerName]:
        """As many looks as there are names."""
        self._visits[0] += len(self)
        return super().__iter__()

    def values(self) -> Any:  # noqa: ANN401  as above
        """As many looks as there are values."""
        self._visits[0] += len(self)
        return super().values()

    def items(self) -> Any:  # noqa: ANN401  as above
        """As many looks as there are values."""
        self._visits[0] += len(self)
        return super().items()


def visits_per_event(learners: int, *, budget: bool) -> tuple[float, float]:
    """Looks at records, books and quotas per event: while a run goes on, and while it ends."""
    events, visits = [0], [0]

    def meter(what: str, call: Any) -> Any:  # noqa: ANN401  whatever the fleet wants to be measured
        events[0] += what.startswith("syncer ")
        return call()

    tokens = 50 * learners * BATCH_TOKENS
    settings = RunSettings(budget_tokens=tokens if budget else None)
    fleet = Fleet(settings, learners, meter)
    core = fleet.syncer.core
    core.members.learners = Counted(visits)
    core.durable.leases.holders = Counted(visits)
    core.durable.ledger.books = Counted(visits)
    fleet.run_until(lambda: fleet.all_step, 60.0)
    events[0] = visits[0] = 0
    fleet.run_until(lambda: False, fleet.now_s + MEASURED_S)
    going = visits[0] / events[0]
    fleet.stop()
    events[0] = visits[0] = 0
    fleet.run_until(lambda: fleet.finished, fleet.now_s + 100.0)
    assert fleet.finished
    return going, visits[0] / events[0]


@pytest.mark.parametrize("budget", [False, True])
def test_an_event_costs_the_same_among_many_learners_as_among_few(budget: bool) -> None:  # noqa: FBT001  a parameter of the test
    """With eight times as many learners, an event looks at no more records, also at the end.

    What is done once a round or once a second for every learner is shared by as many events.
    """
    few, many = visits_per_event(FEW, budget=budget), visits_per_event(MANY, budget=budget)
    for some, more in zip(few, many, strict=True):
        assert more <= 1.5 * some, (few, many)
