"""A learner's own account of one fragment: the tokens held, sent, overwritten, and in doubt.

The syncer decides each round once, so an update of round r decides every ticket up to r, and one of
a later epoch every older ticket (protocol §2).

Reference: the carrying rule is protocol §14, delay-corrected adoption (LOSCAR, arXiv 2605.20866).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from islands.protocol.identities import Version
from islands.protocol.messages.training import FragmentProgress, FragmentUpdate, Kept, Merged
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
