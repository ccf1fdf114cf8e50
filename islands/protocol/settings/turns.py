"""Who opens a round, and who gets its value: the settings of asynchronous runs.

In its **turn**, a learner does H steps from a base of its own, then opens a round in which it is
asked alone. `why_turns_unsupported` says what that goes together with: `TURNS` is the table.

Reference: Asynchronous Local-SGD (arXiv 2401.09135), algorithm 2.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from islands.protocol.settings.combinations import Adoption, Anchor, MergeRule


class Trigger(StrEnum):
    """What opens a round."""

    PACE = "pace"
    LEARNER = "learner"


class SendTo(StrEnum):
    """Which learners get a new value."""

    ALL = "all"
    CONTRIBUTORS = "contributors"


TURNS: Mapping[tuple[Trigger, SendTo], tuple[Adoption, ...]] = MappingProxyType(
    {
        (Trigger.PACE, SendTo.ALL): tuple(Adoption),
        (Trigger.LEARNER, SendTo.ALL): (Adoption.DELAY_CORRECTED,),
        (Trigger.LEARNER, SendTo.CONTRIBUTORS): tuple(Adoption),
    }
)
"""The adoptions that go with each trigger and choice of recipients; what is not named is refused.

With `trigger: learner`, moreover, the anchor is `base`, the quorum is 1, and no merge is robust.
"""


def why_turns_unsupported(
    trigger: Trigger,
    send_to: SendTo,
    merge: MergeRule,
    adoption: Adoption,
    anchor: Anchor,
    *,
    by_speed: bool,
    alone: bool,
    overlaps: bool,
) -> str | None:
    """Say which choice does not go with the trigger, and what does; None if all do.

    Args:
        trigger: what opens a round.
        send_to: who gets its value.
        merge: the merge rule.
        adoption: the rule of adoption.
        anchor: the anchor of contributions.
        by_speed: whether H follows each learner's speed.
        alone: whether the quorum is 1.
        overlaps: whether learners wait, and τ is not 0.
    """
    if (trigger, send_to) not in TURNS:
        return (
            f"send_to is {send_to}, which needs trigger learner: where all are asked together, "
            "those whose answers came late would train on from an old value; use all"
        )
    if trigger is Trigger.PACE:
        told = "interval_by_speed is true, which needs trigger learner: at the pace of all, H is"
        return f"{told} the same for all" if by_speed else None
    if adoption not in TURNS[trigger, send_to]:
        return (
            f"adoption is {adoption}, which with trigger learner does not go with send_to "
            f"{send_to}: the value of one learner would discard the work that the others are "
            f"at; use send_to contributors, or adoption {Adoption.DELAY_CORRECTED}"
        )
    told = "where trigger is learner it must be"
    if anchor is not Anchor.BASE:
        return (
            f"anchor is {anchor}; {told} base, for a contribution that is merged alone would else "
            "undo all that was merged since its base"
        )
    if merge.robust:
        return (
            f"merge is {merge}; {told} average or rda, for a robust merge of one contribution has "
            "nothing to drop"
        )
    if not alone:
        return f"quorum is not 1; {told} 1, for each contribution is merged as it arrives"
    if overlaps:
        return f"overlap_steps is not 0; {told} 0 if learners wait, each for a value of its own"
    return None
