"""Who may contribute to a round: each reason by itself."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Incarnation, LearnerName, Phase, Role, Status, Version
from islands.protocol.messages.training import FragmentProgress, Progress
from islands.protocol.syncer.eligibility import (
    BUSY,
    SILENT,
    ineligible_because,
    stale_because,
    unready_because,
)
from islands.protocol.syncer.members import LearnerRecord
from islands.protocol.syncer.precision import EXACT, AdaptivePrecision
from tests.syncer.bench import report_of

KEPT = (Version(1, 3), Version(1, 4), Version(2, 5))
PROGRESS = report_of(
    "a", 100, FragmentProgress(Version(2, 5), 7, 70), FragmentProgress(Version(1, 4), 10, 100)
)


def record(progress: Progress = PROGRESS) -> LearnerRecord:
    precision = AdaptivePrecision(EXACT, 0)
    return LearnerRecord(LearnerName("a"), Role.LEARNER, Incarnation(1, 1), progress, 1, precision)


def test_a_live_stepping_learner_is_eligible() -> None:
    assert ineligible_because(record(), 0, kept=KEPT, merged=None) is None


AILING = (Status.SUSPECT, Status.STALLED, Status.EVICTED, Status.LEFT)
FRESH, ABLE = (Phase.JOINING, Phase.COMPILING, Phase.HEALING), (Phase.STARVED, Phase.FINISHED)
BARE = (FragmentProgress(), PROGRESS.fragments[1])


@pytest.mark.parametrize(
    ("report", "changed", "reason"),
    [
        ({}, {"role": Role.OBSERVER}, "does not contribute"),
        ({}, {"connection": None}, "link down"),
        *(({}, {"status": status}, status.value) for status in AILING),
        *(({"phase": phase}, {}, phase.value) for phase in FRESH),
        *(({"phase": phase}, {}, None) for phase in ABLE),
        ({"fragments": BARE}, {}, "has not adopted every fragment"),
    ],
)
def test_a_ready_learner_is_live_linked_and_whole(
    report: dict[str, object], changed: dict[str, object], reason: str | None
) -> None:
    learner = record(replace(PROGRESS, **report))  # type: ignore[arg-type]
    for name, value in changed.items():
        setattr(learner, name, value)
    assert unready_because(learner) == reason


def test_two_unanswered_pulls_are_enough() -> None:
    learner = record()
    learner.pulls.send(7, 0, 0.0)
    assert unready_because(learner) is None
    learner.pulls.send(8, 1, 0.0)
    assert unready_because(learner) == BUSY


def test_a_silent_learner_has_one_pull_at_a_time_and_is_redeemed_by_a_word() -> None:
    """Silence is that nothing was heard since an overdue pull was sent; a report ends it."""
    learner = record()
    learner.hears(1.0)
    learner.pulls.send(7, 0, 2.0)
    assert not learner.falls_silent(11.9, 10.0)
    assert learner.falls_silent(12.0, 10.0)
    assert not learner.falls_silent(12.0, 10.0)  # it is so already
    assert unready_because(learner) == SILENT
    assert learner.hears(13.0)
    assert unready_because(learner) is None
    assert not learner.falls_silent(600.0, 10.0)  # it was heard since: its answer is under way


def test_it_needs_a_step_since_its_base() -> None:
    reason = ineligible_because(record(), 1, kept=KEPT, merged=None)
    assert reason == "no step since it adopted its base"


@pytest.mark.parametrize(
    ("base", "merged", "fresh"),
    [
        (Version(2, 5), None, True),
        (Version(1, 3), None, True),
        (Version(1, 2), None, False),  # not kept any more
        (Version(1, 5), None, False),  # of another epoch, never committed here
        (None, None, False),
        (Version(1, 4), Version(2, 5), False),  # its own contribution is in 2.5
        (Version(2, 5), Version(2, 5), True),
    ],
)
def test_a_base_must_be_kept_and_contain_the_own_contribution(
    base: Version | None, merged: Version | None, *, fresh: bool
) -> None:
    assert (stale_because(base, kept=KEPT, merged=merged) is None) is fresh
