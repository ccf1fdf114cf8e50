"""When a round may open."""

import pytest

from islands.protocol.identities import LearnerName
from islands.protocol.settings.run import PaceBy
from islands.protocol.syncer.timing import Pace

NAMES = [LearnerName(text) for text in ("a", "b", "c", "d")]


def pace_with(by: PaceBy, interval: float, reported: list[float]) -> Pace:
    """A pace at which each learner has reported so many steps."""
    pace = Pace(by, interval)
    for name, steps in zip(NAMES, reported, strict=False):
        pace.credits[name] = steps
        pace.enter(name)
    return pace


def among(by: PaceBy, interval: float, *names: LearnerName) -> Pace:
    """A pace at which these learners are ready, and have reported nothing."""
    pace = Pace(by, interval)
    for name in names:
        pace.enter(name)
    return pace


@pytest.mark.parametrize(
    ("by", "setter"),
    [(PaceBy.FASTEST, "a"), (PaceBy.MEDIAN, "b"), (PaceBy.SLOWEST, "d")],
)
def test_the_pace_setter_is_chosen_by_credit(by: PaceBy, setter: str) -> None:
    """Fastest, upper median or slowest of the eligible, by credit."""
    assert pace_with(by, 2.0, [4.0, 3.0, 2.0, 1.0]).setter() == setter


def test_a_tie_is_decided_by_name() -> None:
    """Equal credits are ranked by name, so a run repeats."""
    assert pace_with(PaceBy.FASTEST, 2.0, [1.0, 1.0, 1.0, 1.0]).setter() == "a"


def test_only_the_eligible_set_the_pace() -> None:
    """A learner that may not contribute does not open rounds, and nobody opens none."""
    pace = pace_with(PaceBy.FASTEST, 2.0, [9.0, 1.0])
    assert pace.ready()
    pace.leave(NAMES[0])
    assert not pace.ready()
    pace.leave(NAMES[1])
    assert not pace.ready()


def test_a_round_opens_at_the_interval_and_everybody_pays() -> None:
    """At a credit of H/P a round opens, and H/P is taken from all, also from the slow."""
    pace = among(PaceBy.FASTEST, 2.0, NAMES[0])
    pace.progressed(NAMES[0], 1)
    assert not pace.ready()
    pace.progressed(NAMES[0], 1)
    pace.progressed(NAMES[1], 1)
    assert pace.ready()
    pace.opened(pace.round_interval_steps)
    assert pace.credits == {"a": 0.0, "b": -1.0}


@pytest.mark.parametrize("next_interval", [0.5, 4.0, 9.0])
def test_a_round_is_paid_at_its_own_interval(next_interval: float) -> None:
    """One that is set for the next round is the price of that one, and of no earlier one."""
    pace = among(PaceBy.FASTEST, 4.0, *NAMES[:2])
    pace.progressed(NAMES[0], 4)
    pace.progressed(NAMES[1], 3)
    pace.opened(next_interval)
    assert pace.credits == {"a": 0.0, "b": -1.0}
    assert pace.round_interval_steps == next_interval
    assert not pace.ready()


def test_credits_are_bounded() -> None:
    """Who ran ahead cannot open a burst, and who is slow does not fall behind without end."""
    pace = Pace(PaceBy.FASTEST, 8.0)
    pace.progressed(NAMES[0], 1000)
    assert pace.credits[NAMES[0]] == pace.cap_steps == 9.0
    for _ in range(10):
        pace.opened(pace.round_interval_steps)
    assert pace.credits[NAMES[0]] == -1.0


def test_below_one_step_per_round_the_credit_is_one_step() -> None:
    """With P > H one step may open several rounds, but never more than it is worth."""
    pace = among(PaceBy.FASTEST, 0.5, NAMES[0])
    pace.progressed(NAMES[0], 5)
    opened = 0
    while pace.ready():
        pace.opened(pace.round_interval_steps)
        opened += 1
    assert opened == 2


def test_a_new_incarnation_begins_at_zero() -> None:
    """The credit of an ended incarnation is not inherited."""
    pace = pace_with(PaceBy.MEDIAN, 2.0, [2.0])
    pace.forget(NAMES[0])
    assert not pace.ready()
