"""A run that merges nothing says so, and why.

While learners step and no version is committed for several intervals, the tape gets an entry
`nothing_merged`: for how long, what became of the rounds meanwhile, and of each learner why it was
not asked, since when its answer is awaited, or by how much its last one came too late. The log and
the screen show it. It is repeated while it stays true, at most once a minute.
"""

from dataclasses import dataclass

from islands.identities import LearnerName
from islands.syncer.timeouts import WARN_EVERY_S

NAMED_MOST = 8
"""Learners whose reason is given; of thousands, these tell enough."""


@dataclass(slots=True)
class MergeWatch:
    """When something was merged last; `since_s` is None while nothing needs to be."""

    merges: int = 0
    since_s: float | None = None
    warned_s: float | None = None
    abandoned: int = 0

    def stands_still_s(self, merges: int, now_s: float, *, expected: bool) -> float:
        """For how long nothing was merged although learners stepped.

        Args:
            merges: of the whole run.
            now_s: the time.
            expected: whether somebody steps, and the run neither pauses nor ends.
        """
        if not expected:
            self.since_s = None
        elif self.since_s is None or merges != self.merges:
            self.merges, self.since_s, self.abandoned = merges, now_s, 0
        return 0.0 if self.since_s is None else now_s - self.since_s

    def due(self, now_s: float) -> bool:
        """Whether to say so now; at most once a minute."""
        if self.warned_s is not None and now_s - self.warned_s < WARN_EVERY_S:
            return False
        self.warned_s = now_s
        return True


def why(
    left_out: dict[LearnerName, str], waiting_s: dict[LearnerName, float], late_s: dict[str, float]
) -> dict[str, str]:
    """A sentence for each learner, the first few by name.

    Args:
        left_out: why a learner is not asked for the next fragment.
        waiting_s: since when the answer of one that was asked is awaited.
        late_s: by how much the last answer missed its round.
    """
    told: dict[str, str] = {}
    for name in sorted({*left_out, *waiting_s})[:NAMED_MOST]:
        parts = []
        if name in waiting_s:
            parts.append(f"asked {waiting_s[name]:.1f} s ago, has not answered")
        elif name in left_out:
            parts.append(left_out[name])
        if name in late_s:
            parts.append(f"its last answer came {late_s[name]:.1f} s too late")
        told[name] = "; ".join(parts)
    return told
