"""How many answers a round waits for where K is `auto`, by how long learners took to answer before.

A learner that has answered goes on, and loses under `overwrite` what it does until it adopts the
result: each answer that is waited for costs those that came before it. A round that n learners
answer, the slowest of them after a_n seconds, brings about

    n · (1 − a_n / (H · ξ_step))

intervals of work; K is the n for which that is largest. Two learners that answer 10 ms apart are
waited for with steps of 1 ms, and one that is ten times slower than seven others is not.

Deviation: the paper sets K by hand (K = 1 and a grace); this rule is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class QuorumTarget:
    """A quorum, and how many seconds it may take; None stands for everyone who is asked."""

    quorum: int | None
    within_s: float = inf


def worth_waiting(answers_s: Sequence[float | None], interval_s: float) -> QuorumTarget:
    """The answers that are worth their wait.

    Args:
        answers_s: the longest that each of those who are asked took lately, in seconds; None if it
            has not answered yet, and then nobody waits for it.
        interval_s: H steps, in seconds; 0 if they are unknown.
    """
    known = sorted(answer_s for answer_s in answers_s if answer_s is not None)
    if not known or interval_s <= 0:
        return QuorumTarget(1)

    def gain(count: int) -> float:
        return count * (1 - known[count - 1] / interval_s)

    best = max(range(1, len(known) + 1), key=lambda count: (gain(count), count))
    return QuorumTarget(best, known[best - 1])
