"""Eligibility: which learners may be asked to contribute to a round (protocol §3.2).

A *ready* learner may be asked as a whole, an *eligible* one for a fragment. One that does not keep
up with its pulls is left alone (`pulls.py`).
"""

from collections.abc import Collection

from islands.protocol.identities import Phase, Role, Status, Version
from islands.protocol.syncer.members import LearnerRecord

UNANSWERED_MAX = 2
NOT_ADOPTED = "its last contribution is merged and not yet adopted"
BUSY = "two pulls unanswered"
SILENT = "nothing was heard from it since it was pulled"


def unready_because(learner: LearnerRecord) -> str | None:
    """Return the first reason against asking a learner at all; None if it is ready."""
    if learner.role is not Role.LEARNER:
        return "does not contribute"
    if learner.status is not Status.LIVE:
        return learner.status.value
    if learner.connection is None:
        return "link down"
    if learner.phase in (Phase.JOINING, Phase.COMPILING, Phase.HEALING):
        return learner.phase.value
    if not learner.whole:
        return "has not adopted every fragment"
    if learner.silent and len(learner.pulls):
        return SILENT
    if len(learner.pulls) >= UNANSWERED_MAX:
        return BUSY
    return None


def ineligible_because(
    learner: LearnerRecord, fragment: int, *, kept: Collection[Version], merged: Version | None
) -> str | None:
    """Return the first reason against asking a learner for a fragment, or None.

    `kept` are the fragment's newest versions, `merged` contains the learner's last contribution.
    """
    reason = unready_because(learner)
    if reason is not None:
        return reason
    report = learner.progress.fragments[fragment]
    if learner.progress.steps <= report.base_steps:
        return "no step since it adopted its base"
    return stale_because(report.version, kept=kept, merged=merged)


def stale_because(
    base: Version | None, *, kept: Collection[Version], merged: Version | None
) -> str | None:
    """Return why a base is too old to contribute from; None if it is fresh."""
    if base is None:
        return "has no base"
    if merged is not None and base < merged:
        return NOT_ADOPTED
    if base not in kept:
        return f"base {base} is not among the {len(kept)} newest versions"
    return None
