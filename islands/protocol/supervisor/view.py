"""The membership view: learners' statuses, sent to syncers as numbered changes.

Each change of a learner's status, and each command of an operator that all must know, has a number.
A syncer's heartbeat says up to which number it knows the view; it is sent what changed since then,
in the order of the changes, in pages that fit a frame. The whole view is what changed since 0, so
the same rule serves a syncer that is new or missed a page. The cost depends on what has changed,
not on how many learners there are.

To a syncer whose number does not grow, the changes that it lacks are retransmitted, first after
`resend_s`, and then with exponential backoff: over a slow link the pages, or their acknowledgement,
may still be under way. A forgotten name (`membership.py`) has no change any more, so a syncer that
does not know the name's last change yet gets the whole view anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

PAGE_MEMBERS = 128
"""Most members in one page: with names of 64 characters of four bytes each it fits a frame."""

RESENDS_DOUBLED_MAX = 6


@dataclass(slots=True)
class View:
    """The number of each learner's last change.

    `number` is that of the newest change, `changes` maps names to the number of their last change
    in ascending order, and `forgotten` is the highest number of a name that was forgotten.
    """

    number: int = 0
    forgotten: int = 0
    changes: dict[str, int] = field(default_factory=dict)

    def changed(self, name: str | None = None) -> None:
        """Count a change: of a learner's status or incarnation, or (no name) one for all."""
        self.number += 1
        if name is not None:
            self.changes.pop(name, None)
            self.changes[name] = self.number

    def forget(self, name: str) -> None:
        self.forgotten = max(self.forgotten, self.changes.pop(name, 0))

    def start(self, number: int) -> int:
        """The number from which to send to a syncer that knows the view up to `number`.

        It is `number`, or 0 (the whole view) if a later change was forgotten or it is not ours.
        """
        return number if self.forgotten <= number <= self.number else 0

    def pages(self, after: int) -> Iterator[tuple[int, int, list[str]]]:
        """Pages of (after, up to, names) that changed; one page without names if nothing did."""
        names: list[str] = []
        for name in reversed(self.changes):
            if self.changes[name] <= after:
                break
            names.append(name)
        names.reverse()
        while len(names) > PAGE_MEMBERS:
            page, names = names[:PAGE_MEMBERS], names[PAGE_MEMBERS:]
            yield after, self.changes[page[-1]], page
            after = self.changes[page[-1]]
        yield after, self.number, names


@dataclass(slots=True)
class Follower:
    """A syncer that follows the view over one link.

    `told` is the change number up to which it was sent the view, and `known` the one that it has
    acknowledged. `due` says that it gets a page even if nothing changed. `waiting_s` is the time
    since which it has acknowledged the same number, and `repeats` counts retransmissions since.
    """

    connection: int
    told: int
    known: int
    waiting_s: float
    repeats: int = 0
    due: bool = True

    def hear(self, known: int, now_s: float, resend_s: float) -> None:
        """Take in the number that its heartbeat acknowledges; rewind `told` to retransmit."""
        self.due = True
        if known != self.known or known >= self.told:
            self.known, self.waiting_s, self.repeats = known, now_s, 0
        elif now_s - self.waiting_s >= resend_s * 2 ** min(self.repeats, RESENDS_DOUBLED_MAX):
            self.told, self.waiting_s = known, now_s
            self.repeats += 1
