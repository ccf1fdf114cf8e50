"""The snapshot that answers a pull, and the snapshots to take for the next ones.

The answer is the newest snapshot of a boundary before the pull arrived. After a pull of fragment p
the next ones are p+1, p+2, …, so only those are snapshotted at every boundary, as far ahead as
pulls went during the learner's last steps: a slow learner would else answer every pull one step
late, and never be merged. The first pull over a link, and a repeated one, measure nothing: a
restarted syncer may go on from an earlier round.

Each pull ends exactly once: it is answered or declined, or void with its link or incarnation. A
newer pull of its fragment ends the open one, which is declined then.

A snapshot is usable while its base is still the one held, however old it is. While compute takes no
step, a pull waits for the newest one, which then contains all work done.

Reference: Decoupled DiLoCo copies all parameters to host memory after every step.
Deviation: only the fragments next due are copied.
"""

from collections import deque
from dataclasses import dataclass, field

from islands.protocol.identities import FragmentIndex, Ticket, Version
from islands.protocol.learner.actions import PlanSnapshots
from islands.protocol.learner.events import SnapshotTaken
from islands.protocol.messages.training import PullFragment

REJECTED_KEPT = 32
"""Answers remembered that were not applied; a departure need not wait for these."""


@dataclass(slots=True)
class Pulls:
    """Open pulls and the snapshots to answer them with.

    `lookahead` is the least number of fragments to snapshot ahead, `fragments` is P, and `span` is
    how many were pulled during one of the last steps. `skipped` holds pulls whose answer the link
    did not take: they are open again from the next boundary on. `undecided` holds fragments whose
    answer is in flight or merged: the next adoption would invalidate a snapshot, so they are
    snapshotted only when pulled. `anew` says that no pull has come over this link, `planned` is the
    last plan of compute, and `rejected` has the (epoch, round) of answers that were not applied.
    `offered` maps fragments whose seed was sent over this link to epoch and attempt of the request.
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
    anew: bool = True
    planned: PlanSnapshots = field(default_factory=lambda: PlanSnapshots(()))
    rejected: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REJECTED_KEPT))
    offered: dict[int, tuple[int, int]] = field(default_factory=dict)

    def known(self, fragment: int) -> list[Ticket]:
        """The tickets of a fragment's pulls over this link that are open, or answered last."""
        groups = (self.wanted, self.answered, self.skipped)
        return [group[fragment].ticket for group in groups if fragment in group]

    def knows(self, pull: PullFragment) -> bool:
        return pull.ticket in self.known(pull.fragment)

    def overtaken(self, fragment: int, ticket: Ticket) -> bool:
        """Whether a later pull of the fragment came, so that this one has ended, or ends now."""
        known = self.known(fragment)
        later = any((one.epoch, one.round) > (ticket.epoch, ticket.round) for one in known)
        return later and ticket not in known

    def asked(self, pull: PullFragment) -> PullFragment | None:
        """Open a pull, unless it was answered over this link; returns the one that it ends."""
        answered = self.answered.get(pull.fragment)
        if answered is not None and answered.ticket == pull.ticket:
            return None
        repeated = self.knows(pull)
        replaced = None if repeated else self.end(pull.fragment)
        self.skipped.pop(pull.fragment, None)
        self.wanted[pull.fragment] = pull
        if not repeated:
            self.next_due = (pull.fragment + 1) % self.fragments
            if self.anew:
                self.due_before, self.anew = pull.fragment, False
        return replaced

    def end(self, fragment: int) -> PullFragment | None:
        """Remove the open pull of a fragment, which is answered or declined now."""
        skipped = self.skipped.pop(fragment, None)
        return self.wanted.pop(fragment, skipped)

    def closed(self, fragment: int) -> None:
        pull = self.end(fragment)
        assert pull is not None, "only an open pull is answered"
        self.answered[fragment] = pull
        self.undecided[fragment] = None

    def decided(self, fragment: int) -> None:
        """Allow snapshots of a fragment again, since the fate of its last answer is known."""
        self.undecided.pop(fragment, None)

    def adopted(self, fragment: int) -> None:
        self.decided(fragment)
        self.snapshots.pop(fragment, None)

    def unanswered(self, fragment: int, ticket: Ticket) -> bool:
        """Reopen a pull whose answer the link did not take: when it is repeated, or after a step.

        Returns:
            False if a later pull of its fragment has ended it, so that it is to be declined.
        """
        pull = self.answered.get(fragment)
        if pull is not None and pull.ticket == ticket:
            self.skipped[fragment] = self.answered.pop(fragment)
            self.decided(fragment)
        return not self.overtaken(fragment, ticket)

    def stepped(self) -> None:
        """Measure how far pulls went during a completed step, and reopen the skipped ones."""
        moved = (self.next_due - self.due_before) % self.fragments
        self.due_before = self.next_due
        self.span = max(moved, self.span - 1)
        self.wanted = self.skipped | self.wanted
        self.skipped = {}

    def link_changed(self) -> None:
        """Forget pulls and answers of the old link, which the syncer repeats."""
        self.wanted.clear()
        self.answered.clear()
        self.skipped.clear()
        self.undecided.clear()
        self.anew = True

    def keep(self, snapshot: SnapshotTaken) -> None:
        self.snapshots[snapshot.fragment] = snapshot

    def forget(self) -> None:
        """Drop all pulls, answers and snapshots, which a new incarnation cannot use."""
        self.link_changed()
        self.snapshots.clear()
        self.rejected.clear()

    def answerable(
        self, fragment: int, *, base: Version | None, least_steps: int
    ) -> SnapshotTaken | None:
        """The snapshot relative to this base, of this total of steps at least, if there is one."""
        snapshot = self.snapshots.get(fragment)
        if snapshot is None or snapshot.base != base or snapshot.steps < least_steps:
            return None
        return snapshot

    def plan(self) -> tuple[FragmentIndex, ...]:
        """Fragments to snapshot at each boundary, the most urgent first.

        Fragments without a usable snapshot come first (an open pull counts as such, or it would
        have been answered); within each group, those with an open pull come before those due next.
        """
        count = min(self.fragments, max(self.lookahead, self.span + 1))
        ahead = [(self.next_due + i) % self.fragments for i in range(count)]
        due = [index for index in ahead if index not in self.undecided]
        all_ = dict.fromkeys([*self.skipped, *self.wanted, *due])
        spare = self.snapshots.keys() - self.wanted.keys()
        order = sorted(all_, key=lambda index: index in spare)
        return tuple(FragmentIndex(index) for index in order)
