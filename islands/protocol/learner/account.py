"""A learner's books of its fragments: the tokens of each one's base, and the pulls to be answered.

The syncer decides each round once, so an update of round r decides every ticket up to r, and one of
a later epoch every older ticket (protocol §2).

The answer to a pull is the newest snapshot of a boundary before the pull arrived. After a pull of
fragment p the next ones are p+1, p+2, …, so only those are snapshotted at every boundary, as far
ahead as pulls went during the learner's last steps: a slow learner would else answer every pull one
step late, and never be merged. The first pull over a link, and a repeated one, measure nothing: a
restarted syncer may go on from an earlier round.

Each pull ends exactly once: it is answered or declined, or void with its link or incarnation. A
newer pull of its fragment ends the open one, which is declined then.

A snapshot is usable while its base is still the one held, however old it is. While compute takes no
step, a pull waits for the newest one, which then contains all work done.

Reference: the carrying rule is protocol §14, delay-corrected adoption (LOSCAR, arXiv 2605.20866);
Decoupled DiLoCo copies all parameters to host memory after every step.
Deviation: only the fragments next due are copied.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from islands.protocol.identities import FragmentIndex, Ticket, Version
from islands.protocol.learner.actions import PlanSnapshots
from islands.protocol.learner.events import SnapshotTaken
from islands.protocol.messages.training import (
    FragmentProgress,
    FragmentUpdate,
    Kept,
    Merged,
    PullFragment,
)
from islands.protocol.settings.choices import Precision

SENT_MAX = 16
"""Tickets remembered per base; a learner with two unanswered pulls is not asked again."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One answered ticket, with the tokens since the base and, if kept, the bytes sent.

    `precision` is that of the bytes, None where they are as the device gave them.
    """

    epoch: int
    round: int
    tokens: int
    payload: memoryview | None = field(default=None, compare=False, repr=False)
    precision: Precision | None = None

    @property
    def ticket(self) -> tuple[int, int]:
        return self.epoch, self.round

    def decided_by(self, update: FragmentUpdate) -> bool:
        """Whether the syncer had decided this ticket when it made or sent the update."""
        return self.epoch < update.epoch or self.round <= update.round


@dataclass(frozen=True, slots=True)
class Queued:
    """An update that waits for a boundary, at this total of steps at least."""

    update: FragmentUpdate
    at_steps: int


@dataclass(slots=True)
class Account:
    """The account of one fragment in one incarnation.

    `base_steps` and `base_tokens` are the incarnation's totals when the base was adopted. `queue`
    holds the updates that wait for a boundary, `kept` the value that an ended incarnation adopted.
    """

    version: Version | None = None
    digest: str = ""
    base_steps: int = 0
    base_tokens: int = 0
    overwritten_tokens: int = 0
    sent: list[Sent] = field(default_factory=list)
    doubtful: list[list[Sent]] = field(default_factory=list)
    merged_newest: tuple[int, int] = (-1, -1)
    queue: list[Queued] = field(default_factory=list)
    kept: Kept | None = None

    def next_incarnation(self) -> "Account":
        kept = self.kept if self.version is None else Kept(self.version, self.digest)
        return Account(kept=kept)

    def answered(
        self, epoch: int, round_: int, tokens: int, payload: memoryview | None = None
    ) -> None:
        """Record that a contribution was sent, and that an older answer to its ticket is void."""
        ticket = (epoch, round_)
        self.sent = [sent for sent in self.sent if sent.ticket != ticket]
        self.sent = [*self.sent, Sent(epoch, round_, tokens, payload)][-SENT_MAX:]
        for group in self.doubtful:
            before = _largest(group)
            group[:] = [sent for sent in group if sent.ticket != ticket]
            self.overwritten_tokens += before - _largest(group)
        self.doubtful = [group for group in self.doubtful if group]

    def encoded(self, epoch: int, round_: int, payload: memoryview, precision: Precision) -> None:
        self.sent = [
            replace(sent, payload=payload, precision=precision)
            if sent.ticket == (epoch, round_)
            else sent
            for sent in self.sent
        ]

    def can_carry(self, merged: Merged | None) -> bool:
        """Whether our part of a published value is known, so that the rest can be carried over.

        It is no newer contribution than in earlier values, or one sent since the base was adopted.
        """
        if self.version is None:
            return False
        old = merged is None or (merged.epoch, merged.round) <= self.merged_newest
        return old or self.sent_of(merged) is not None

    def sent_of(self, merged: Merged | None) -> Sent | None:
        """A merged contribution as it was sent, if that was since the base was adopted."""
        return _merged_of(self.sent, merged)

    def carry_on(self, update: FragmentUpdate) -> None:
        """Replace the base, and keep the local work that the new base does not contain.

        Contributions that were sent and not decided yet stay pending, and stay known.
        """
        merged = self._news(update.merged)
        if merged is not None:
            self.base_steps += merged.steps
            self.base_tokens += merged.tokens
        self.sent = [sent for sent in self.sent if not sent.decided_by(update)]
        self.version, self.digest = update.version, update.digest

    def adopt(self, update: FragmentUpdate, *, steps: int, tokens: int) -> None:
        """Record that an update overwrote the local value at a boundary with these totals."""
        merged = self._news(update.merged)
        done = tokens - self.base_tokens
        if merged is not None and self.sent_of(merged):
            done -= merged.tokens
        else:
            undecided = [
                replace(sent, payload=None) for sent in self.sent if not sent.decided_by(update)
            ]
            if undecided:
                done -= _largest(undecided)
                self.doubtful.append(undecided)
        self.overwritten_tokens += done
        self._settle(lambda sent: sent.decided_by(update), merged)
        self.version, self.digest = update.version, update.digest
        self.base_steps, self.base_tokens = steps, tokens
        self.sent = []

    def _news(self, merged: Merged | None) -> Merged | None:
        """The merged contribution, if this is the first update that contains it."""
        if merged is None or (merged.epoch, merged.round) <= self.merged_newest:
            return None
        self.merged_newest = (merged.epoch, merged.round)
        return merged

    def _settle(self, decided: Callable[[Sent], bool], merged: Merged | None = None) -> None:
        remaining: list[list[Sent]] = []
        for group in self.doubtful:
            if merged is not None and _merged_of(group, merged):
                self.overwritten_tokens += _largest(group) - merged.tokens
            elif all(map(decided, group)):
                self.overwritten_tokens += _largest(group)
            else:
                remaining.append(group)
        self.doubtful = remaining

    def welcomed(self, epoch: int, version: Version | None) -> None:
        """Settle older doubts if a new syncer's committed version is ours: none was merged."""
        if version is not None and version == self.version:
            self._settle(lambda sent: sent.epoch < epoch)

    @property
    def progress(self) -> FragmentProgress:
        in_doubt = sum(_largest(group) for group in self.doubtful)
        return FragmentProgress(
            version=self.version,
            base_steps=self.base_steps,
            settled_tokens=self.base_tokens - in_doubt,
            overwritten_tokens=self.overwritten_tokens,
        )


def _largest(group: list[Sent]) -> int:
    """The tokens of a group of tickets: those of one base are nested, so the largest has all."""
    return max((sent.tokens for sent in group), default=0)


def _merged_of(group: list[Sent], merged: Merged | None) -> Sent | None:
    if merged is None:
        return None
    return next((sent for sent in group if sent.ticket == (merged.epoch, merged.round)), None)


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

        False: a later pull of its fragment has ended it, so that it is to be declined.
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
