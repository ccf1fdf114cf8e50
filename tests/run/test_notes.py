"""What a run's folder takes of the notes of its members."""

import pytest

from islands.protocol.identities import Role
from islands.protocol.tape.kinds import NOTABLE
from islands.run.records.notes import BURST, CHARACTERS_MAX, NAMES_MAX, NOTED, PER_S, NoteBudget

KIND = "moments_fresh"


def taken(budget: NoteBudget, count: int, now_s: float, name: str = "a") -> int:
    """How many of so many short notes of a learner are taken at once."""
    found = [budget.take(name, Role.LEARNER, KIND, 10, now_s) for _ in range(count)]
    return len([one for one in found if one is not None])


def test_a_learner_that_was_away_tells_what_it_kept() -> None:
    budget = NoteBudget()
    assert taken(budget, BURST, 0.0) == BURST
    assert taken(budget, 9, 0.0) == 0
    assert taken(budget, BURST + 9, 0.0 + BURST / PER_S) == BURST


@pytest.mark.parametrize("at_once", [1, 1000])
def test_whoever_writes_without_end_gets_one_a_second(at_once: int) -> None:
    budget, seconds = NoteBudget(), 500
    found = sum(taken(budget, at_once, float(second)) for second in range(seconds))
    assert found <= BURST + PER_S * seconds
    assert found >= PER_S * seconds


def test_what_was_dropped_is_told_once() -> None:
    budget = NoteBudget()
    taken(budget, BURST + 5, 0.0)
    assert budget.take("a", Role.LEARNER, KIND, 10, 1.0) == 5
    assert budget.take("a", Role.LEARNER, KIND, 10, 2.0) == 0


def test_a_long_note_is_dropped() -> None:
    assert NoteBudget().take("a", Role.LEARNER, KIND, CHARACTERS_MAX + 1, 0.0) is None


def test_one_that_floods_takes_nothing_from_another() -> None:
    budget = NoteBudget()
    taken(budget, 1000, 0.0, "liar")
    assert taken(budget, BURST, 0.0, "b") == BURST


def test_a_syncer_notes_as_fast_as_it_merges() -> None:
    budget = NoteBudget()
    found = [budget.take("s", Role.SYNCER, "merged", 10, 0.0) for _ in range(10_000)]
    assert set(found) == {0}
    assert budget.take("s", Role.SYNCER, "admitted", 10, 0.0) is None


def test_names_without_end_are_forgotten() -> None:
    budget = NoteBudget()
    for number in range(3 * NAMES_MAX):
        assert taken(budget, 1, float(number), f"n{number}") == 1
    assert len(budget.purses) <= NAMES_MAX


def test_each_kind_that_is_kept_is_somebodys() -> None:
    assert set().union(*NOTED.values()) <= NOTABLE
    assert not NOTED[Role.LEARNER] & {"merged", "admitted", "status", "finished", "diverged"}


def test_a_pause_begins_and_ends_by_the_syncers_word() -> None:
    """The run's folder would else show a run as paused that goes on."""
    budget = NoteBudget()
    assert [budget.take("s", Role.SYNCER, kind, 2, 0.0) for kind in ("paused", "resumed")] == [0, 0]
