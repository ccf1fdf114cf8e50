"""When a learner answers a pull, and with what.

Answers come from the newest snapshot, taken at a boundary before the pull arrived: the order of
fragments is known, so after a pull of fragment p the next ones are p+1, p+2, …, and only those are
snapshotted at every boundary. A pull that no snapshot can answer (the first one, or one out of
order) is answered as soon as one has been copied.

How far ahead to look depends on the learner's own speed: while a slow one makes a step, many
fragments are asked for. So it looks as far ahead as pulls went during its last steps; otherwise a
slow learner would answer every pull one step late, and never be merged.

A snapshot is usable while its base is still the one held; an adoption makes it worthless. Its age
does not matter: it holds exactly the steps up to its boundary, however long the copy to the host
took since. Only while compute stands still does a pull wait for the newest: then everything that
was done is in it, and nothing that is left out now would be done again later.

Reference: Decoupled DiLoCo copies all parameters to host memory after every step.
Deviation: only the fragments next due are copied.
"""

from dataclasses import dataclass, field

from islands.identities import FragmentIndex, Ticket, Version
from islands.learner.events import SnapshotTaken
from islands.messages.training import PullFragment


@dataclass(slots=True)
class Pulls:
    """Open pulls and the snapshots to answer them with.

    `lookahead` is how many fragments are snapshotted ahead at least; `fragments` is P; `span` is
    how many fragments were asked for during one of the last steps. `skipped` are pulls whose answer
    the link did not take: they are open again from the next boundary on. `undecided` are fragments
    whose answer is on its way or merged: what is snapshotted before the next adoption is worthless
    if it is merged, so nothing is, unless it is asked for.
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
    undecided: dict[int, None] = field(default_factory=dict)

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
        self.undecided[fragment] = None

    def decided(self, fragment: int) -> None:
        """The last answer is not going to be merged."""
        self.undecided.pop(fragment, None)

    def adopted(self, fragment: int) -> None:
        """Another value is the base now: what was copied before is worthless."""
        self.decided(fragment)
        self.snapshots.pop(fragment, None)

    def unanswered(self, fragment: int, ticket: Ticket) -> None:
        """The answer was not sent: answer again when asked again, or after the next step.

        Not at once, for what did not take it would not take it now.
        """
        pull = self.answered.get(fragment)
        if pull is not None and pull.ticket == ticket:
            self.skipped[fragment] = self.answered.pop(fragment)
            self.decided(fragment)

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
        self.undecided.clear()

    def taken(self, snapshot: SnapshotTaken) -> None:
        """A snapshot is on the host; a newer one replaces it."""
        self.snapshots[snapshot.fragment] = snapshot

    def forget(self) -> None:
        """A new incarnation or a new syncer: earlier pulls and snapshots are void."""
        self.link_changed()
        self.snapshots.clear()

    def answerable(
        self, fragment: int, *, base: Version | None, least_steps: int
    ) -> SnapshotTaken | None:
        """The snapshot that answers the open pull of a fragment now, if there is one.

        Args:
            fragment: index.
            base: version held.
            least_steps: total steps that it must contain.
        """
        snapshot = self.snapshots.get(fragment)
        if snapshot is None or snapshot.base != base or snapshot.steps < least_steps:
            return None
        return snapshot

    def plan(self) -> tuple[FragmentIndex, ...]:
        """Fragments to snapshot at each boundary, the most urgent first.

        That is those without a snapshot that answers before those that could have a newer one, and
        of each those that are asked for before those due next. What is asked for has none, or it
        would have been answered: at the end of a run only the newest does.
        """
        count = min(self.fragments, max(self.lookahead, self.span + 1))
        ahead = [(self.next_due + i) % self.fragments for i in range(count)]
        due = [index for index in ahead if index not in self.undecided]
        all_ = dict.fromkeys([*self.skipped, *self.wanted, *due])
        spare = self.snapshots.keys() - self.wanted.keys()
        order = sorted(all_, key=lambda index: index in spare)
        return tuple(FragmentIndex(index) for index in order)
