"""The pulls that one learner has yet to answer: each of them ends exactly once (protocol §3.3).

`Pulls.end` ends one pull, `Pulls.void` all of a link. While one is open it is sent again, ever more
rarely (`retries.py`); a learner that does not know it any more declines it. So what a fault of
either side loses ends a little later, and never leaves a learner unasked. A learner is **silent**
if nothing at all was heard over its link since a pull that is overdue was sent: then it has one
pull at a time, and no new round waits for it. The first thing that is heard redeems it.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Pull:
    """A pull without an end: its fragment, when it was sent first and last, and how often.

    `offered_s` is when its answer left, if that is known, and `size_bytes` is the answer's length.
    """

    fragment: int
    first_s: float
    at_s: float
    times: int = 1
    offered_s: float | None = None
    size_bytes: int = 0


@dataclass(slots=True)
class Pulls:
    """The open pulls of one learner over its present link, by round."""

    open: dict[int, Pull] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.open)

    def send(self, round_: int, fragment: int, now_s: float) -> None:
        pull = self.open.get(round_)
        if pull is None:
            self.open[round_] = Pull(fragment, now_s, now_s)
        else:
            pull.at_s, pull.times = now_s, pull.times + 1

    def end(self, round_: int) -> Pull | None:
        """End a pull; return it, or None if it had ended before."""
        return self.open.pop(round_, None)

    def overtaken(self, round_: int, fragment: int) -> list[int]:
        """Return the rounds of open pulls of a fragment before the one that has ended."""
        before = [each for each in self.open if each < round_]
        return [each for each in before if self.open[each].fragment == fragment]

    def void(self) -> None:
        self.open.clear()

    @property
    def oldest_s(self) -> float | None:
        """When the pull that has been open for longest was first sent; None if none is open."""
        return min((pull.first_s for pull in self.open.values()), default=None)
