"""When a learner answers a pull, and with what.

Answers come from a snapshot of the last completed boundary, taken before the pull arrived: the
order of fragments is known, so after a pull of fragment p the next ones are p+1, p+2, …, and only
those are snapshotted at every boundary. A pull that no snapshot can answer (the first one, or one
out of order) is answered from the next boundary.

How far ahead to look depends on the learner's own speed: while a slow one makes a step, many
fragments are asked for. So it looks as far ahead as pulls went during its last steps; otherwise a
slow learner would answer every pull one step late, and never be merged.

A snapshot is usable while its base is still the one held; an adoption makes it worthless.

Reference: Decoupled DiLoCo copies all parameters to host memory after every step.
Deviation: only the fragments next due are copied.
"""

from dataclasses import dataclass, field

from islands.identities import FragmentIndex, Ticket, Version
from islands.learner.events import SnapshotTaken
from islands.messages import PullFragment

AGE_MAX_STEPS = 1
"""The copy to the host overlaps the next step, so the newest snapshot may be one step behind."""


@dataclass(slots=True)
class Pulls:
    """Open pulls and the snapshots to answer them with.

    `lookahead` is how many fragments are snapshotted ahead at least; `fragments` is P; `span` is
    how many fragments were asked for during one of the last steps. `skipped` are pulls whose answer
    the link did not take: they are open again from the next boundary on.
    """

    fragments: int
    lookahead: int
    wanted: dict[int, PullFragment] = field(default_factory=dict)
    snapshots: dict[int, SnapshotTaken] = field(default_factory=dict)
    next_due: int = 0
    span: int = 0
    due_before: int = 0
    answered: dict[int, PullFragment] = field(default_factory=dict)
    skipped: dict[int, PullFragment] = field(default_factory=dict)

    def knows(self, pull: PullFragment) -> bool:
        """Whether a pull was asked before, and is open or answered."""
        groups = (self.wanted, self.answered, self.skipped)
        held = [group[pull.fragment] for group in groups if pull.fragment in group]
        return any(one.ticket == pull.ticket for one in held)

    def asked(self, pull: PullFragment) -> None:
        """A pull arrived: it is open, and its successors are due next.

        One that was answered over this link is only repeated because the answer takes its time.
        """
        answered = self.answered.get(pull.fragment)
        if answered is not None and answered.ticket == pull.ticket:
            return
        self.skipped.pop(pull.fragment, None)
        self.wanted[pull.fragment] = pull
        self.next_due = (pull.fragment + 1) % self.fragments

    def closed(self, fragment: int) -> None:
        """The open pull of a fragment is answered."""
        self.answered[fragment] = self.wanted.pop(fragment)

    def unanswered(self, fragment: int, ticket: Ticket) -> None:
        """The answer was not sent: answer again when asked again, or after the next step.

        Not at once, for what did not take it would not take it now.
        """
        pull = self.answered.get(fragment)
        if pull is not None and pull.ticket == ticket:
            self.skipped[fragment] = self.answered.pop(fragment)

    def stepped(self) -> None:
        """A step is complete: see how far the pulls went meanwhile."""
        moved = (self.next_due - self.due_before) % self.fragments
        self.due_before = self.next_due
        self.span = max(moved, self.span - 1)
        self.wanted = self.skipped | self.wanted
        self.skipped = {}

    def link_changed(self) -> None:
        """What was asked over the old link is asked again; answers may have been lost with it."""
        self.wanted.clear()
        self.answered.clear()
        self.skipped.clear()

    def taken(self, snapshot: SnapshotTaken) -> None:
        """A snapshot is on the host; a newer one replaces it."""
        self.snapshots[snapshot.fragment] = snapshot

    def forget(self) -> None:
        """A new incarnation or a new syncer: earlier pulls and snapshots are void."""
        self.link_changed()
        self.snapshots.clear()

    def answerable(
        self, fragment: int, *, base: Version | None, base_steps: int, steps: int
    ) -> SnapshotTaken | None:
        """The snapshot that answers the open pull of a fragment now, if there is one.

        Args:
            fragment: index.
            base: version held.
            base_steps: total steps when it was adopted; at least one more must have been done.
            steps: total steps at the last completed boundary.
        """
        snapshot = self.snapshots.get(fragment)
        if snapshot is None or snapshot.base != base or snapshot.steps <= base_steps:
            return None
        return snapshot if steps - snapshot.steps <= AGE_MAX_STEPS else None

    def plan(self) -> tuple[FragmentIndex, ...]:
        """Fragments to snapshot at each boundary: those wanted, and those due next."""
        count = min(self.fragments, max(self.lookahead, self.span + 1))
        ahead = [(self.next_due + i) % self.fragments for i in range(count)]
        return tuple(
            FragmentIndex(index) for index in sorted({*self.wanted, *self.skipped, *ahead})
        )
