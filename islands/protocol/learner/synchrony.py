"""Where a learner stands still until a merge: the schedule of the synchronous presets.

A learner that waits (`learner_waits: at_tau`) counts its rounds in its own steps. With H, P and τ
of protocol §1, round r is **due** H/P steps after round r − 1: the contribution holds exactly the
steps up to there. The value that contains it is adopted exactly τ steps later, and where it has not
arrived by then, the learner stands still. So all learners stay within τ steps of one another, as in
DiLoCo (τ = 0) and Streaming DiLoCo (τ > 0).

A round that was merged without this learner, because it was too slow or joined late, is adopted on
arrival, and the next round is due H/P steps later. A contribution that was not applied is not
waited for.

Reference: DiLoCo (arXiv 2311.08105), algorithm 1; Streaming DiLoCo (arXiv 2501.18512), §2.
"""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(slots=True)
class Synchrony:
    """When this learner's rounds are due, in compute's totals of steps.

    Args:
        interval_steps: H.
        fragments: P.
        overlap_steps: τ, below H.
        settled: the newest round up to which none is waited for any more.
        beyond: later rounds that are not waited for, whose values overtook those of earlier ones.
        anchor: a round, and the total at which it was due, from which other rounds are counted;
            None until the learner may step.
    """

    interval_steps: int
    fragments: int
    overlap_steps: int
    settled: int = -1
    beyond: set[int] = field(default_factory=set)
    anchor: tuple[int, int] | None = None

    def begin(self, steps: int) -> None:
        """Count from here, where every fragment has been adopted and no step was taken since."""
        self.anchor = self.settled, steps

    def end(self) -> None:
        """Forget the anchor, as an incarnation ends; rounds are counted from the next one's."""
        self.settled, self.anchor = -1, None
        self.beyond.clear()

    def due(self, round_: int) -> int:
        """Return the total of steps that the contribution to a round holds: anchor + ⌈n·H/P⌉."""
        assert self.anchor is not None, "rounds are due once the learner may step"
        first, steps = self.anchor
        return steps - (first - round_) * self.interval_steps // self.fragments

    def adopt_at(self, round_: int, *, contributed: bool) -> int:
        """Return the total at which the value of a round is to be adopted; 0 is on arrival."""
        if self.anchor is None or not contributed:
            return 0
        return self.due(round_) + self.overlap_steps

    def settle(self, round_: int, steps: int, under_way: Collection[int] = ()) -> None:
        """Wait no more for a round, which was adopted or will not come, nor for most before it.

        Args:
            round_: number of the round.
            steps: compute's total. Before the round was due, the next one is counted from here.
            under_way: rounds that the learner contributed to and whose fate is not known, which it
                goes on waiting for.
        """
        if round_ <= self.settled or round_ in self.beyond:
            return
        self.beyond.add(round_)
        if self.anchor is not None and steps < self.due(round_):
            self.anchor = round_, steps
        last = max(self.beyond)
        while self.settled < last and not (
            self.settled + 1 in under_way and self.settled + 1 not in self.beyond
        ):
            self.settled += 1
            self.beyond.discard(self.settled)

    @property
    def until_steps(self) -> int | None:
        """The total at which the learner stands still, unless a further round is settled."""
        return None if self.anchor is None else self.due(self.settled + 1) + self.overlap_steps

    def snapshots(self) -> dict[int, int]:
        """Return, by fragment, the totals at which the snapshots within reach are to be taken."""
        until_steps = self.until_steps
        if until_steps is None:
            return {}
        first = self.settled + 1
        within_reach = (first + i for i in range(self.fragments))
        return {r % self.fragments: self.due(r) for r in within_reach if self.due(r) <= until_steps}
