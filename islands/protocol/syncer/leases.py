"""Data leases and token quotas (protocol §9, §3.9): what a learner may read, and how much.

A quota is journalled before it is sent, and what a dead incarnation did not use is given out again.
Grants shrink towards the end, so that all learners finish together (guided self-scheduling).
"""

from dataclasses import dataclass, field
from math import ceil

import msgspec

from islands.protocol.identities import Incarnation, LearnerName, Lease
from islands.protocol.messages.training import Progress
from islands.protocol.settings.run import RunSettings

OUTAGE_S = 60.0
"""Learners go on while the syncer is away, so a grant lasts for at least so long."""

GRANT_INTERVALS = 2
"""An ordinary grant lasts for at least so many intervals between two merges of a fragment."""

STEP_TIME_MIN_S = 1e-6
"""No step is believed to be shorter: a grant would become too large to be shared."""

LEASES_HELD_MIN = 2
"""A learner always knows its next shard, so that it never waits for one.

What is left of a shard that another one began may be little, so it comes on top. A learner gets
more if what is left of an ordinary grant needs more shards.
"""

LEASES_HELD_MAX = 256
"""Every report and every grant holds all leases of a learner, and must fit into one frame.

One of them is a whole shard, which has room for a batch, whatever is left of the others.
"""

QUOTA_TOKENS_MAX = 2**62
"""Quota of one incarnation, also without a budget: what a report claims must fit into a grant."""


class Holder(msgspec.Struct, array_like=True, gc=False):
    """Quota and leases of one incarnation; `finished` counts the shards it read to their ends.

    `read_records` is by how much its positions advanced: never by more than its tokens, since a
    record has at least one token. So a false position stays within what its sender processed.
    """

    incarnation: Incarnation
    quota_tokens: int = 0
    used_tokens: int = 0
    steps: int = 0
    finished: int = 0
    read_records: int = 0
    leases: list[Lease] = msgspec.field(default_factory=list)

    @property
    def unused_tokens(self) -> int:
        return self.quota_tokens - self.used_tokens

    @property
    def unfinished(self) -> list[Lease]:
        """The leases whose shards are not read to their ends."""
        return [lease for lease in self.leases if not lease.done]


@dataclass(slots=True)
class LeaseBook:
    """Shards and quotas of the whole run; an ordinary grant has `chunk_steps` at least.

    `barren` counts the shards in a row that ended without a record, since anybody has processed a
    token.
    """

    shards: int
    budget_tokens: int | None
    chunk_steps: int
    pass_index: int = 0
    next_shard: int = 0
    closed_tokens: int = 0
    free: list[Lease] = field(default_factory=list)
    holders: dict[LearnerName, Holder] = field(default_factory=dict)
    barren: int = 0
    granted_tokens: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Add the quotas up once; from then on their sum is kept."""
        self.granted_tokens = sum(holder.quota_tokens for holder in self.holders.values())

    @property
    def remaining_tokens(self) -> int | None:
        """The part of the budget that nobody holds; None without a budget."""
        if self.budget_tokens is None:
            return None
        return self.budget_tokens - self.closed_tokens - self.granted_tokens

    @property
    def barren_passes(self) -> int:
        """Whole passes, or as many shards, that had nothing for anybody: the data has ended."""
        return self.barren // self.shards

    def open(self, name: LearnerName, incarnation: Incarnation) -> None:
        self.holders[name] = Holder(incarnation)

    def close(self, name: LearnerName, processed_tokens: int) -> list[Lease]:
        """End an incarnation: its unused quota goes back, and its unfinished leases, returned."""
        holder = self.holders.pop(name)
        self.closed_tokens += processed_tokens
        self.granted_tokens -= holder.quota_tokens
        returned, holder.leases = holder.unfinished, []
        self.free = sorted([*self.free, *returned])
        return returned

    def reported(self, progress: Progress) -> None:
        holder = self.holders[progress.name]
        if progress.tokens > holder.used_tokens:
            holder.used_tokens, self.barren = progress.tokens, 0
        holder.steps = max(holder.steps, progress.steps)
        reported = {(lease.pass_index, lease.shard): lease for lease in progress.leases}
        before = sum(lease.done for lease in holder.leases)
        barren = sum(lease.done and not lease.position for lease in holder.leases)
        holder.leases = [
            _advanced(holder, lease, reported.get((lease.pass_index, lease.shard), lease))
            for lease in holder.leases
        ]
        holder.finished += sum(lease.done for lease in holder.leases) - before
        self.barren += sum(lease.done and not lease.position for lease in holder.leases) - barren

    def top_up(
        self,
        name: LearnerName,
        *,
        batch_tokens: int,
        members: int,
        chunk_steps: int,
        reading: int | None = None,
        proven: bool = True,
    ) -> bool:
        """Give a learner what it will need next; return whether anything changed.

        The rest of the budget is shared among `members`, of whom `reading` read already (None: all
        of them). Where its batch is not `proven`, but only claimed, it gets no more of the rest
        than an equal part among those that read. `grant_steps` returns `chunk_steps`.
        """
        holder = self.holders[name]
        wanted = self._leases_wanted(holder, chunk_steps // 2, members)
        changed = self._renew_leases(holder, wanted)
        chunk = chunk_steps * batch_tokens
        amount = chunk
        remaining = self.remaining_tokens
        if remaining is not None:
            fair = remaining // (2 * max(1, members))
            least = batch_tokens if proven else remaining // max(1, reading or members)
            amount = min(chunk, max(fair, min(least, batch_tokens)), remaining)
        amount = min(amount, QUOTA_TOKENS_MAX - holder.quota_tokens)
        amount -= amount % batch_tokens
        if holder.unused_tokens > min(chunk // 2, amount):
            return changed
        holder.quota_tokens += amount
        self.granted_tokens += amount
        return changed or amount > 0

    def _leases_wanted(self, holder: Holder, ahead_steps: int, members: int) -> int:
        """Return the shards for so many steps: at most half of a fair part of a pass, or two."""
        steps = max(1, holder.steps)
        ahead = 1 + ceil(ahead_steps * holder.finished / steps)
        fair = self.shards // (2 * max(1, members))
        return max(LEASES_HELD_MIN, min(ahead, fair, LEASES_HELD_MAX))

    def _renew_leases(self, holder: Holder, wanted: int) -> bool:
        unfinished = holder.unfinished
        if len(unfinished) >= wanted:
            return False
        missing = wanted - len(unfinished)
        while missing and len(unfinished) < LEASES_HELD_MAX:
            last = len(unfinished) == LEASES_HELD_MAX - 1
            begun = last and all(lease.position for lease in unfinished)
            lease = self._next_whole() if begun else self._next_lease()
            unfinished.append(lease)
            missing -= lease.position == 0  # of a shard that was begun, any little may be left
        holder.leases = sorted(unfinished)
        return True

    def _next_lease(self) -> Lease:
        return self.free.pop(0) if self.free else self._new_lease()

    def _next_whole(self) -> Lease:
        """Return the next shard that nobody has begun."""
        for index, lease in enumerate(self.free):
            if lease.position == 0:
                return self.free.pop(index)
        return self._new_lease()

    def _new_lease(self) -> Lease:
        lease = Lease(self.pass_index, self.next_shard, 0)
        self.next_shard += 1
        if self.next_shard == self.shards:
            self.pass_index, self.next_shard = self.pass_index + 1, 0
        return lease


def _advanced(holder: Holder, held: Lease, reported: Lease) -> Lease:
    """Return a lease, advanced as far as its holder's tokens bear out the reported position."""
    newer = max(held, reported)
    records = min(newer.position - held.position, holder.used_tokens - holder.read_records)
    holder.read_records += records
    return Lease(newer.pass_index, newer.shard, held.position + records, newer.done)


def ordinary_grant_steps(settings: RunSettings) -> int:
    return max(8, GRANT_INTERVALS * settings.interval_steps)


def grant_steps(least: int, step_time_s: float) -> int:
    """Return an ordinary grant's steps: `least` at least, and half of it outlasts `OUTAGE_S`."""
    if step_time_s <= 0:
        return least
    return max(least, ceil(2 * OUTAGE_S / max(step_time_s, STEP_TIME_MIN_S)))
