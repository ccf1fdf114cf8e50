"""Standstill: the warning that a run merges nothing, and why.

While learners step and no version is committed for several intervals, the tape gets an entry
`nothing_merged`. It tells for how long, what became of the rounds meanwhile, and for each learner
why it was not asked, how long its answer has been awaited, or by how much its last one was late.
The log and the screen show it. It is repeated while it stays true, at most once a minute.
`waits_for` names the members that a run waits for (`standing.py`), and is repeated in the same way.
"""

from dataclasses import dataclass

from islands.protocol.identities import LearnerName
from islands.protocol.syncer.timeouts import WARN_EVERY_S

NAMED_MOST = 8
"""Number of learners whose reason is given; of thousands, these tell enough."""


@dataclass(slots=True)
class MergeWatch:
    """Watches for how long nothing is merged; `since_s` is None while no merge is expected."""

    merges: int = 0
    since_s: float | None = None
    warned_s: float | None = None
    abandoned: int = 0

    def stands_still_s(self, merges: int, now_s: float, *, expected: bool) -> float:
        """Return for how long nothing was merged although learners stepped.

        Args:
            merges: number of merges in the whole run so far.
            now_s: the time.
            expected: whether a learner steps, and the run is neither paused nor ending.
        """
        if not expected:
            self.since_s = None
        elif self.since_s is None or merges != self.merges:
            self.merges, self.since_s, self.abandoned = merges, now_s, 0
        return 0.0 if self.since_s is None else now_s - self.since_s

    def due(self, now_s: float) -> bool:
        """Return whether to warn now, which is at most once a minute."""
        if self.warned_s is not None and now_s - self.warned_s < WARN_EVERY_S:
            return False
        self.warned_s = now_s
        return True


@dataclass(slots=True)
class WaitWatch:
    """Watches for how long the run waits for members; `since_s` is None while it does not."""

    since_s: float | None = None
    told_s: float | None = None

    def due(self, *, waits: bool, now_s: float, patience_s: float) -> bool:
        """Return whether to tell for whom it waits: after `patience_s`, at most once a minute."""
        if not waits:
            self.since_s = None
            return False
        self.since_s = now_s if self.since_s is None else self.since_s
        lately = self.told_s is not None and now_s - self.told_s < WARN_EVERY_S
        if now_s - self.since_s < patience_s or lately:
            return False
        self.told_s = now_s
        return True


def why(
    left_out: dict[LearnerName, str], waiting_s: dict[LearnerName, float], late_s: dict[str, float]
) -> dict[str, str]:
    """Return a sentence for each of the first few learners by name.

    Args:
        left_out: why a learner is not asked for the next fragment.
        waiting_s: for how long the answer of a learner that was asked has been awaited.
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
