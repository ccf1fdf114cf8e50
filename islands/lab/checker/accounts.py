"""Rules about counting (I2): fates, the ledger, quotas and shards, each recounted here.

No rule trusts the syncer's counters: tokens come from what the learners recorded as sent and
processed, fates from the entries of single decisions. The recount is then compared with the
syncer's final ledger.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from islands.lab.checker.evidence import History, Limits, Pair, pair, ticket
from islands.protocol.identities import Fate
from islands.protocol.tape import round_entries
from islands.protocol.tape.learner_entries import Adopted, Contributed
from islands.protocol.tape.process_entries import Started

Who = tuple[str, Pair]
Shard = tuple[int, int]


def each_has_one_fate(history: History, limits: Limits) -> Iterator[str]:
    """A ticket gets at most one fate, for a contribution that was sent; exactly one if admitted."""
    fates: dict[str, round_entries.FateTold] = {}
    arrived: dict[str, round_entries.Arrived] = {}
    finished = False
    for _, _, entry in history.effective:
        if isinstance(entry, round_entries.Arrived):
            if entry.ticket in arrived:
                yield f"{entry.ticket} was admitted twice"
            arrived[entry.ticket] = entry
        elif isinstance(entry, Started):  # contributions without a fate were lost in the restart
            arrived = {text: entry for text, entry in arrived.items() if text in fates}
        elif isinstance(entry, round_entries.FateTold):
            if entry.ticket in fates:
                yield f"{entry.ticket} was {fates[entry.ticket].fate}, then {entry.fate}"
            fates[entry.ticket] = entry
            yield from _was_sent(history, entry)
            if entry.fate is Fate.APPLIED and entry.ticket not in arrived:
                yield f"{entry.ticket} was applied without being admitted"
        elif isinstance(entry, round_entries.Finished):
            finished = True
    if finished or limits.must_finish:
        for text in arrived:
            if text not in fates:
                yield f"{text} was admitted and has no fate"


def _was_sent(history: History, fate: round_entries.FateTold) -> Iterator[str]:
    sent = history.contributions.get(fate.ticket, [])
    if not any((s.fragment, s.tokens) == (fate.fragment, fate.tokens) for s in sent):
        yield f"{fate.ticket} was {fate.fate} with {fate.tokens} tokens and never sent like that"
    elif [*history.senders[fate.ticket]] != [ticket(fate.ticket).name]:
        yield f"{fate.ticket} was sent by somebody else"


def applied(history: History) -> Iterator[tuple[Who, Contributed]]:
    """Every applied contribution with its sender, in order."""
    for _, _, entry in history.effective:
        if isinstance(entry, round_entries.FateTold) and entry.fate is Fate.APPLIED:
            facts = ticket(entry.ticket)
            for sent in history.contributions.get(entry.ticket, []):
                if sent.tokens == entry.tokens:
                    yield (facts.name, facts.incarnation), sent
                    break


def nothing_is_applied_twice(history: History, _limits: Limits) -> Iterator[str]:
    """An incarnation's contributions applied to a fragment cover disjoint ranges of its tokens."""
    end: dict[tuple[Who, int], int] = {}
    for who, sent in applied(history):
        begin = sent.processed - sent.tokens
        if begin < end.get((who, sent.fragment), 0):
            yield (
                f"{sent.ticket} applies tokens {begin} to {sent.processed} to fragment "
                f"{sent.fragment}, those to {end[who, sent.fragment]} are applied"
            )
        end[who, sent.fragment] = max(end.get((who, sent.fragment), 0), sent.processed)


def contributions_are_their_steps(history: History, limits: Limits) -> Iterator[str]:
    """A contribution counts the tokens of exactly the steps that it contains, and no later ones."""
    for _, actor, entry in history.lines:
        batch_tokens = limits.batch_tokens.get(actor)
        if not isinstance(entry, Contributed) or batch_tokens is None:
            continue
        if entry.tokens != entry.steps * batch_tokens:
            yield f"{entry.ticket} counts {entry.tokens} tokens for {entry.steps} steps"


def ledger_balances(history: History, limits: Limits) -> Iterator[str]:
    """The final ledger equals the recount, balances, and has no pending tokens."""
    finished = [e for _, _, e in history.effective if isinstance(e, round_entries.Finished)]
    if not finished or finished[-1].ledger is None:
        return
    processed = 0
    for _, _, entry in history.effective:
        if isinstance(entry, round_entries.BookClosed):
            processed += entry.processed
            known = history.totals.get((entry.name, pair(entry.incarnation)), {0: None})
            if entry.processed not in known and entry.processed:
                yield f"{entry.name}/{entry.incarnation} never knew of {entry.processed} tokens"
    for text, tokens in (finished[-1].processed or {}).items():
        processed += tokens
        name, _, incarnation = text.rpartition("/")
        last = max(history.totals.get((name, pair(incarnation)), {0: None}))
        if tokens != last:
            yield f"{text} processed {last} tokens, the ledger has {tokens}"
    yield from _rows_match(history, finished[-1], processed)
    if finished[-1].reason == "tokens" and limits.budget_tokens is not None:
        rest = limits.budget_tokens - processed
        if not 0 <= rest < max(limits.batch_tokens.values()):
            yield f"{processed} of {limits.budget_tokens} tokens were processed"


def _rows_match(
    history: History, finished: round_entries.Finished, processed: int
) -> Iterator[str]:
    claimable = (Fate.REJECTED, Fate.LATE, Fate.STALE)
    sums: dict[tuple[int, Fate], int] = {}
    for _, _, entry in history.effective:
        if isinstance(entry, round_entries.FateTold) and entry.fate in claimable:
            key = (entry.fragment, entry.fate)
            sums[key] = sums.get(key, 0) + entry.tokens
    applied_tokens: dict[int, int] = {}
    for _, sent in applied(history):
        applied_tokens[sent.fragment] = applied_tokens.get(sent.fragment, 0) + sent.tokens
    for index, row in enumerate(finished.ledger or []):
        if row.imbalance:
            yield f"fragment {index}: the ledger differs by {row.imbalance} tokens: {row}"
        if row.pending:
            yield f"fragment {index}: {row.pending} tokens are pending at the end"
        if (row.processed, row.applied) != (processed, applied_tokens.get(index, 0)):
            yield (
                f"fragment {index}: processed {processed}, applied {applied_tokens.get(index, 0)}, "
                f"the ledger has {row.processed} and {row.applied}"
            )
        by_fate = {Fate.REJECTED: row.rejected, Fate.LATE: row.late, Fate.STALE: row.stale}
        for fate, tokens in by_fate.items():
            if tokens > sums.get((index, fate), 0):
                yield f"fragment {index}: {tokens} tokens are {fate}, that is more than was sent"
        if min(row.overwritten, row.lost, *by_fate.values()) < 0:
            yield f"fragment {index}: a fate has less than no tokens: {row}"
        if row.lost > _losable(history, index):
            yield f"fragment {index}: {row.lost} tokens are lost, more than ended incarnations had"


def _losable(history: History, fragment: int) -> int:
    """Tokens that ended incarnations processed, less those applied: the most that can be lost."""
    closed = {
        (e.name, pair(e.incarnation)): e.processed
        for _, _, e in history.effective
        if isinstance(e, round_entries.BookClosed)
    }
    for who, sent in applied(history):
        if sent.fragment == fragment and who in closed:
            closed[who] -= sent.tokens
    return sum(closed.values())


def quotas_are_kept(history: History, limits: Limits) -> Iterator[str]:
    """No incarnation processes more than its quota, and all quotas together fit the budget."""
    granted: dict[Who, int] = {}
    spent: dict[Who, int] = {}
    for at_s, _, entry in history.effective:
        if isinstance(entry, round_entries.Granted):
            who = (entry.name, pair(entry.incarnation))
            granted[who] = entry.quota
            spent[who] = entry.quota
        elif isinstance(entry, round_entries.BookClosed):
            spent[entry.name, pair(entry.incarnation)] = entry.processed
        if limits.budget_tokens is not None and sum(spent.values()) > limits.budget_tokens:
            yield f"{sum(spent.values())} tokens are given out at {at_s:.3f} s"
            return
    for who, known in history.totals.items():
        if max(known) > granted.get(who, 0):
            yield f"{who} processed {max(known)} tokens, granted were {granted.get(who, 0)}"


def shards_are_read_on(history: History, limits: Limits) -> Iterator[str]:
    """A shard has one holder, which continues at the last known position of the holder before."""
    shards = _Shards(history, limits.records_per_shard)
    for _, _, entry in history.effective:
        if isinstance(entry, round_entries.LeaseReturned):
            yield from shards.returned(entry)
        else:
            yield from shards.settle()
        if isinstance(entry, round_entries.Granted):
            yield from shards.granted(entry)
        elif isinstance(entry, round_entries.BookClosed):
            shards.ended = (entry.name, pair(entry.incarnation))
    yield from shards.settle()


@dataclass(slots=True)
class _Shards:
    """The holder of each shard, and the position from which the next holder continues.

    An incarnation that ends returns its unfinished shards right away. It must have read to their
    ends those that it does not return, and those that a later grant to it leaves out.
    """

    history: History
    records: int
    holders: dict[Shard, Who] = field(default_factory=dict)
    positions: dict[Shard, int] = field(default_factory=dict)
    begun: dict[Shard, int] = field(default_factory=dict)
    ended: Who | None = None

    def granted(self, entry: round_entries.Granted) -> Iterator[str]:
        who = (entry.name, pair(entry.incarnation))
        held = {(pass_index, shard): position for pass_index, shard, position in entry.leases}
        for shard, position in held.items():
            if shard in self.holders:
                if self.holders[shard] != who:
                    yield f"shard {shard} went to {who}, {self.holders[shard]} has it"
                continue
            read_to = self.positions.pop(shard, 0)
            if position != read_to:
                yield f"shard {shard} goes on at {position} for {who}, it was read to {read_to}"
            self.holders[shard] = who
            self.begun[shard] = position
        left_out = [s for s, name in self.holders.items() if name == who and s not in held]
        yield from self._read_to_end(who, left_out)

    def returned(self, entry: round_entries.LeaseReturned) -> Iterator[str]:
        shard = (entry.pass_index, entry.shard)
        who = self.holders.pop(shard, None)
        if who is None or who != self.ended:
            yield f"shard {shard} was returned by {entry.name}, and {who} had it"
        elif entry.position > max(self._reached(who, shard), self.begun[shard]):
            yield f"shard {shard} was returned at {entry.position}, {who} did not read to there"
        elif entry.position < self.begun[shard]:
            yield f"shard {shard} was returned at {entry.position}, {who} began behind that"
        self.positions[shard] = entry.position

    def settle(self) -> Iterator[str]:
        if self.ended is not None:
            who, self.ended = self.ended, None
            yield from self._read_to_end(
                who, [s for s, name in self.holders.items() if name == who]
            )

    def _read_to_end(self, who: Who, shards: list[Shard]) -> Iterator[str]:
        for shard in shards:
            del self.holders[shard]
            self.positions[shard] = self.records
            if self._reached(who, shard) < self.records:
                yield f"shard {shard} was given up by {who} at {self._reached(who, shard)}"

    def _reached(self, who: Who, shard: Shard) -> int:
        return self.history.reached.get((*who, *shard), 0)


def adoptions_discard(history: History, _limits: Limits) -> Iterator[str]:
    """A contribution counts its tokens from where the learner adopted the contribution's base."""
    marks: dict[tuple[str, str, int, str], int] = {}
    for _, actor, entry in history.lines:
        if isinstance(entry, Adopted):
            adopted = (actor, entry.incarnation, entry.fragment, entry.version)
            marks[adopted] = entry.tokens
        elif isinstance(entry, Contributed):
            incarnation = entry.ticket.rpartition("@")[0].rpartition("/")[2]
            mark = marks.get((actor, incarnation, entry.fragment, entry.base))
            if mark != entry.processed - entry.tokens:
                yield f"{entry.ticket} counts from {entry.processed - entry.tokens}, not {mark}"
