"""The quorum where K is `auto`: how many answers are worth their wait, by past answer times.

A learner that has answered goes on stepping and, under `overwrite`, loses what it does until it
adopts the result: waiting for one more answer costs all those who answered before. A round that n
learners answer, the slowest of them after a_n seconds, yields about

    n · (1 − a_n / (H · ξ_step))

intervals of work; K is the n for which that is largest. With steps of 1 ms, two learners that
answer 10 ms apart are both waited for; one that is ten times slower than seven others is not.

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
    """Return how many answers are worth their wait, and by when they are expected.

    Args:
        answers_s: the longest that each learner to be asked took lately to answer, in seconds; None
            for a learner that has not answered yet, which is then not waited for.
        interval_s: duration of H steps, in seconds; 0 if it is unknown.
    """
    known = sorted(answer_s for answer_s in answers_s if answer_s is not None)
    if not known or interval_s <= 0:
        return QuorumTarget(1)

    def gain(count: int) -> float:
        return count * (1 - known[count - 1] / interval_s)

    best = max(range(1, len(known) + 1), key=lambda count: (gain(count), count))
    return QuorumTarget(best, known[best - 1])
