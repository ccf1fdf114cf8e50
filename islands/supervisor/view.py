"""What syncers are told of the learners: what has changed since they were told last.

Each change of a learner's status, and each word of an operator that all must know, has a number. A
syncer's heartbeat says up to which number it knows the view; it is sent what changed since then,
in the order of the changes, in pages that fit a frame. The whole view is what changed since 0, so
a syncer that comes, or missed a page, is told by the same rule. What it costs is what has changed,
however many learners there are.

A syncer whose number does not grow is sent again what it lacks, first after `resend_s`, and then
after twice as long each time: over a slow link the pages, or the word that they came, may still be
under way. A name that is forgotten (`membership.py`) changes no more, so whoever was told last
before it ended begins anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

PAGE_MEMBERS = 128
"""Members of one page: with names of 64 characters of four bytes it fits a frame."""

RESENDS_DOUBLED_MAX = 6


@dataclass(slots=True)
class View:
    """The numbers of the last changes: `changes` by name, in their order.

    `forgotten` is the highest number of a name that was forgotten.
    """

    number: int = 0
    forgotten: int = 0
    changes: dict[str, int] = field(default_factory=dict)

    def changed(self, name: str | None = None) -> None:
        """Something changed: the status or incarnation of a learner, or what concerns all."""
        self.number += 1
        if name is not None:
            self.changes.pop(name, None)
            self.changes[name] = self.number

    def forget(self, name: str) -> None:
        """A name is in the view no more."""
        self.forgotten = max(self.forgotten, self.changes.pop(name, 0))

    def start(self, number: int) -> int:
        """From where to tell whoever knows the view up to a number: from there, or anew."""
        return number if self.forgotten <= number <= self.number else 0

    def pages(self, after: int) -> Iterator[tuple[int, int, list[str]]]:
        """What changed after a number: pages of (after, up to, names); one without names if none.

        Args:
            after: what `start` returned.
        """
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
    """What a syncer was told, on one link, and up to where it has said that it knows it.

    `due` says that it is to hear from us even if nothing changed; `waiting_s` is since when it has
    said the same number, and `repeats` how often it was sent again since.
    """

    connection: int
    told: int
    known: int
    waiting_s: float
    repeats: int = 0
    due: bool = True

    def hear(self, known: int, now_s: float, resend_s: float) -> None:
        """Its heartbeat says up to where it knows the view."""
        self.due = True
        if known != self.known or known >= self.told:
            self.known, self.waiting_s, self.repeats = known, now_s, 0
        elif now_s - self.waiting_s >= resend_s * 2 ** min(self.repeats, RESENDS_DOUBLED_MAX):
            self.told, self.waiting_s = known, now_s
            self.repeats += 1
