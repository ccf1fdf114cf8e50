"""Eligibility: which learners may be asked to contribute to a round.

A learner is **ready** when nothing about it as a whole speaks against asking it:

1. it is a learner, and live in the supervisor's view: not suspect, not stalled;
2. its link to this syncer is up;
3. it is stepping, starved, paused or finished: not joining, not compiling, not healing;
4. it has adopted a committed version of every fragment, so a fresh learner never contributes;
5. it has fewer than two unanswered pulls, so that a learner that does not keep up is left alone;
   one of which nothing was heard since it was pulled has one at a time (`pulls.py`).

A ready learner is **eligible** for a fragment when also

6. it has open work on that fragment: a step that was neither merged nor overwritten;
7. its base contains its own last merged contribution: what was applied is never applied again;
8. its base is one of the `staleness_max` + 1 newest versions, which the syncer keeps.

Source: protocol §3.2.
"""

from collections.abc import Collection

from islands.protocol.identities import Phase, Role, Status, Version
from islands.protocol.syncer.members import LearnerRecord

UNANSWERED_MAX = 2
NOT_ADOPTED = "its last contribution is merged and not yet adopted"
BUSY = "two pulls unanswered"
SILENT = "nothing was heard from it since it was pulled"


def unready_because(learner: LearnerRecord) -> str | None:
    """Return the first of the reasons 1 to 5 against asking a learner; None if it is ready."""
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
    learner: LearnerRecord,
    fragment: int,
    *,
    kept: Collection[Version],
    merged: Version | None,
) -> str | None:
    """Return the first of the reasons 1 to 8 against asking a learner for a fragment, or None.

    `kept` are the fragment's newest versions, `merged` is the one that contains the learner's last
    merged contribution, if any.
    """
    reason = unready_because(learner)
    if reason is not None:
        return reason
    told = learner.progress.fragments[fragment]
    if learner.progress.steps <= told.base_steps:
        return "no step since it adopted its base"
    return stale_because(told.version, kept=kept, merged=merged)


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
