"""Rules about order: epochs and versions (I1), journal before send, fencing, progress (I4)."""

from bisect import bisect_right
from collections.abc import Iterator

from islands.lab.checker.evidence import History, Limits, Pair, pair, ticket
from islands.protocol.identities import Fate, LearnerName, Role
from islands.protocol.tape import round_entries
from islands.protocol.tape.learner_entries import Adopted
from islands.protocol.tape.member_entries import Admitted, ProcessEnded, ProcessStarted, Promoted
from islands.protocol.tape.process_entries import Checkpointed, Started
from islands.protocol.tape.simulation_entries import (
    Final,
    Healed,
    Kept,
    ProcessKilled,
)


def epochs_grow(history: History, _limits: Limits) -> Iterator[str]:
    """Every start of a supervisor or syncer has a higher epoch than all starts before it.

    A syncer that stands still once it has its epoch may record it after one with a higher one. So
    may one from whose copy another has gone on; their epochs differ.
    """
    heir = ""
    newest: dict[bool, int] = {}
    taken: dict[int, None] = {}  # by syncers
    beginning: dict[str, None] = {}  # processes that have recorded no epoch yet
    overtaken: dict[str, None] = {}  # those of them that were there when a syncer recorded its own
    for _, actor, entry in history.lines:
        if isinstance(entry, Promoted):
            heir = entry.name
        elif isinstance(entry, ProcessStarted):
            beginning[entry.name] = None
            overtaken.pop(entry.name, None)
        elif isinstance(entry, Started):
            syncer, epoch = entry.sequence is not None, entry.epoch
            behind = actor in overtaken or heir not in ("", actor)
            late = syncer and behind and epoch not in taken
            beginning.pop(actor, None)
            overtaken.pop(actor, None)
            if syncer:
                taken[epoch] = None
                overtaken |= beginning
            if epoch > newest.get(syncer, 0):
                newest[syncer] = epoch
            elif not late:
                yield f"{actor} began epoch {epoch} after {newest.get(syncer, 0)}"


def incarnations_are_given_once(history: History, _limits: Limits) -> Iterator[str]:
    """No incarnation is given twice, and the incarnations of each name grow."""
    given: dict[Pair, str] = {}
    newest: dict[str, Pair] = {}
    for _, _, entry in history.lines:
        if isinstance(entry, Admitted):
            incarnation = pair(entry.incarnation)
            if incarnation in given:
                yield f"{entry.incarnation} went to {given[incarnation]} and to {entry.name}"
            if incarnation <= newest.get(entry.name, (0, 0)):
                yield f"{entry.name} got {entry.incarnation} after {newest.get(entry.name)}"
            given[incarnation] = entry.name
            newest[entry.name] = incarnation


def versions_grow(history: History, _limits: Limits) -> Iterator[str]:
    """A fragment's committed versions grow, over restarts too, as do those a learner adopts."""
    committed: dict[int, Pair] = {}
    held: dict[tuple[str, str, int], Pair] = {}
    for _, actor, entry in history.owned:
        if isinstance(entry, round_entries.Committed):
            version, before = pair(entry.version), committed.get(entry.fragment, (0, 0))
            if version <= before:
                yield f"fragment {entry.fragment}: {entry.version} committed after {before}"
            committed[entry.fragment] = version
        elif isinstance(entry, Adopted):
            key = (actor, entry.incarnation, entry.fragment)
            version = pair(entry.version)
            if version <= held.get(key, (0, -1)):
                yield f"{actor} adopted {entry.version} after {held[key]}, {entry.fragment}"
            held[key] = version


def versions_follow(history: History, _limits: Limits) -> Iterator[str]:
    """The versions that the syncer kept are one chain per fragment: each merge adds 1.

    Each has the epoch of the start that made it.
    """
    numbers: dict[int, int] = {}
    seed = now = 0
    for _, _, entry in history.effective:
        if isinstance(entry, Started):
            now = entry.epoch
        elif isinstance(entry, round_entries.Seeded):
            seed = pair(entry.version)[1]
            numbers.clear()
        elif isinstance(entry, round_entries.Merged):
            epoch, number = pair(entry.version)
            before = numbers.get(entry.fragment, seed)
            if number != before + 1:
                yield f"fragment {entry.fragment}: version {entry.version} follows {before}"
            if epoch != now:
                yield f"fragment {entry.fragment}: epoch {now} made version {entry.version}"
            numbers[entry.fragment] = number


def versions_have_one_value(history: History, _limits: Limits) -> Iterator[str]:
    """A version has one digest, wherever it appears."""
    digests: dict[tuple[int, str], str] = {}
    for _, actor, entry in history.lines:
        seen: list[tuple[int, str, str]] = []
        if isinstance(entry, round_entries.Merged | round_entries.Committed | Adopted):
            seen = [(entry.fragment, entry.version, entry.digest)]
        elif isinstance(entry, Final | Kept):
            pairs = zip(entry.versions, entry.digests, strict=True)
            seen = [(index, version, digest) for index, (version, digest) in enumerate(pairs)]
        for fragment, version, digest in seen:
            if digests.setdefault((fragment, version), digest) != digest:
                yield f"fragment {fragment}, version {version} has two values ({actor})"


def journal_comes_first(history: History, _limits: Limits) -> Iterator[str]:
    """A version is durable before it is sent or adopted, and no restart loses a durable record."""
    yield from history.undone
    written: dict[int, tuple[int, str]] = {}
    durable: dict[tuple[int, str], None] = {}
    for _, actor, entry in history.owned:
        if isinstance(entry, round_entries.Journal):
            if entry.fragment is not None:
                written[entry.sequence] = (entry.fragment, entry.version)
        elif isinstance(entry, Started) and entry.sequence is not None:
            taken_up = entry.sequence if entry.resumed else -1
            durable.update({what: None for n, what in written.items() if n <= taken_up})
            written.clear()
        elif isinstance(entry, round_entries.Journalled):
            for sequence in [number for number in written if number <= entry.sequence]:
                durable[written.pop(sequence)] = None
        elif (
            isinstance(entry, Adopted | round_entries.Committed)
            and (entry.fragment, entry.version) not in durable
        ):
            did = "adopted" if isinstance(entry, Adopted) else "sent"
            yield f"{actor} {did} {entry.version} of {entry.fragment} before it was durable"


def checkpoints_are_moments(history: History, _limits: Limits) -> Iterator[str]:
    """A checkpoint with a manifest is whole, holds what its record made durable, and balances.

    One of a syncer in whose place a standby has gone on meanwhile is a moment of its own journal.
    """
    owned = {id(entry) for _, _, entry in history.owned}
    epochs, holds = dict[str, int](), dict[str, dict[int, str]]()
    marks: dict[str, dict[int, dict[int, str]]] = {"": {}}
    moments: dict[Pair, dict[int, str]] = {}
    promoted = any(isinstance(entry, Promoted) for _, _, entry in history.lines)
    for _, actor, entry in history.lines if promoted else history.owned:
        own = marks.setdefault(actor, {})
        if isinstance(entry, Started) and entry.sequence is not None:
            epochs[actor] = entry.epoch
            resumed = own.get(entry.sequence, marks[""].get(entry.sequence, {}))
            holds[actor] = dict(resumed) if entry.resumed else {}
        elif isinstance(entry, round_entries.Journal):
            versions = holds.setdefault(actor, {})
            if entry.fragment is not None:
                versions[entry.fragment] = entry.version
            own[entry.sequence] = moments[epochs.get(actor, 0), entry.sequence] = dict(versions)
            if id(entry) in owned:
                marks[""][entry.sequence] = own[entry.sequence]
    for _, _, kept in history.lines:
        if not isinstance(kept, Kept):
            continue
        if kept.fault:
            yield f"checkpoint {kept.name} is not whole: {kept.fault}"
        elif dict(enumerate(kept.versions)) != moments.get((kept.epoch, kept.sequence)):
            yield f"checkpoint {kept.name} holds {', '.join(kept.versions)}, which are no moment"
        if any(row.imbalance for row in kept.ledger):
            yield f"checkpoint {kept.name}: its ledger does not balance"


def checkpoints_stay(history: History, limits: Limits) -> Iterator[str]:
    """The newest checkpoint that was reported is in the end in the store, or a newer one."""
    reported = found = 0, 0
    looked_s = -1.0
    for at_s, _, entry in history.lines:
        if isinstance(entry, Checkpointed):
            reported = max(reported, _age(entry.path.rpartition("/")[2]))
        elif isinstance(entry, Kept):
            found = max(found, _age(entry.name)) if at_s == looked_s else _age(entry.name)
            looked_s = at_s
    if limits.listed and found < reported:
        yield f"checkpoint {reported} was reported, and the newest in the store is {found}"


def _age(name: str) -> Pair:
    return pair(name.replace("-", "."))


def what_ended_is_fenced(history: History, limits: Limits) -> Iterator[str]:
    """Each contribution is admitted by this epoch's ticket, and applied from a kept base.

    The incarnation must not have ended before the round closed; an end that comes while the merge
    is computed comes too late to exclude the contribution. A ticket of an earlier start is none.
    """
    epoch, seed = 0, (0, 0)
    ended: dict[str, Pair] = {}
    closed: dict[int, dict[str, Pair]] = {}
    chains: dict[int, list[Pair]] = {}
    for _, _, entry in history.effective:
        if isinstance(entry, Started):
            epoch = entry.epoch
        elif isinstance(entry, round_entries.BookClosed):
            ended[entry.name] = pair(entry.incarnation)
        elif isinstance(entry, round_entries.Closed):
            closed[entry.fragment] = dict(ended)
        elif isinstance(entry, round_entries.Seeded):
            seed = pair(entry.version)
        elif isinstance(entry, round_entries.Merged):
            chains.setdefault(entry.fragment, [seed]).append(pair(entry.version))
        elif isinstance(entry, round_entries.Arrived) and ticket(entry.ticket).epoch != epoch:
            yield f"{entry.ticket} was admitted in epoch {epoch}"
        elif isinstance(entry, round_entries.FateTold) and entry.fate is Fate.APPLIED:
            facts = ticket(entry.ticket)
            if facts.epoch != epoch:
                yield f"{entry.ticket} was applied in epoch {epoch}"
            fence = closed.get(entry.fragment, {}).get(facts.name, (0, 0))
            if facts.incarnation <= fence:
                yield f"{entry.ticket} was applied after its incarnation had ended"
            kept = chains.get(entry.fragment, [seed])[-limits.staleness_max - 1 :]
            for sent in history.contributions.get(entry.ticket, []):
                if sent.tokens == entry.tokens and pair(sent.base) not in kept:
                    yield f"{entry.ticket} was applied from base {sent.base}, kept were {kept}"


def rounds_have_their_quorum(history: History, limits: Limits) -> Iterator[str]:
    """No round closes, or merges, with fewer than K contributions, except in the closing rounds."""
    closing = False
    for _, _, entry in history.effective:
        if isinstance(entry, Started | round_entries.Closing):
            closing = isinstance(entry, round_entries.Closing)
        elif isinstance(entry, round_entries.Closed | round_entries.Merged):
            who = entry.participants if isinstance(entry, round_entries.Merged) else entry.arrived
            if len(who) < (1 if closing else limits.quorum):
                did = "merged" if isinstance(entry, round_entries.Merged) else "closed with"
                yield f"round {entry.round} {did} {len(who)} contributions"


def learners_keep_up(history: History, limits: Limits) -> Iterator[str]:
    """I4: once faults have stopped, running learners adopt each version within a period.

    Where a value is sent to its contributors alone, it is these who adopt it.
    """
    healing = next(((at_s, e) for at_s, _, e in history.lines if isinstance(e, Healed)), None)
    if healing is None:
        return
    healed_s, healed = healing
    begin_s, period_s = healed_s + healed.recovery_s, healed.period_s
    lives = _lives(history)
    contributors: dict[tuple[int, str], list[LearnerName]] = {}
    adopted: dict[tuple[str, int], tuple[list[float], list[Pair]]] = {}
    for at_s, actor, entry in history.lines:
        if isinstance(entry, Adopted):
            times, versions = adopted.setdefault((actor, entry.fragment), ([], []))
            times.append(at_s)
            versions.append(pair(entry.version))
        elif isinstance(entry, round_entries.Merged) and limits.to_contributors:
            contributors[entry.fragment, entry.version] = entry.participants
    for at_s, _, entry in history.owned:
        if not isinstance(entry, round_entries.Committed) or at_s < begin_s:
            continue
        due_s = at_s + period_s
        for name, (born_s, died_s) in lives.items():
            owed = contributors.get((entry.fragment, entry.version), lives)
            if born_s > healed_s or died_s <= due_s or name not in owed:
                continue
            times, versions = adopted.get((name, entry.fragment), ([], []))
            count = bisect_right(times, due_s)
            if count == 0 or versions[count - 1] < pair(entry.version):
                yield (
                    f"{name} had not adopted {entry.version} of {entry.fragment} "
                    f"{period_s:.1f} s after {at_s:.1f} s"
                )


def _lives(history: History) -> dict[str, tuple[float, float]]:
    """Start and end of each learner's last process; the end of the run ends all of them."""
    end_s = min(
        (
            at_s
            for at_s, _, e in history.lines
            if isinstance(e, round_entries.Finished) and e.ledger is not None
        ),
        default=float("inf"),
    )
    lives: dict[str, tuple[float, float]] = {}
    for at_s, _, entry in history.lines:
        if isinstance(entry, ProcessStarted):
            lives[entry.name] = (at_s, end_s)
        elif isinstance(entry, ProcessEnded | ProcessKilled) and entry.name in lives:
            lives[entry.name] = (lives[entry.name][0], min(at_s, end_s))
    roles = {e.name: e.role for _, _, e in history.lines if isinstance(e, Admitted)}
    learners = [name for name, role in roles.items() if role is Role.LEARNER]
    return {name: lives[name] for name in learners if name in lives}
