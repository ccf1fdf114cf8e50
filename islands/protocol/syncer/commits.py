"""Versions on their way: version 0, commits, to whom each is sent, and when old values are freed.

Version 0 is fetched from a learner, taken back from a member, or read from a file. A version is
journalled first, then sent.

Old values of a fragment stay while it has an open round, while a learner reports an older base that
is kept, while the process of an ended incarnation may come back with one, and while a learner of
the books has not said hello to this start of the syncer. So no contribution is refused because they
were freed, and a syncer mostly holds each value once, not `staleness_max` + 2 times. Increments
that lead on from old versions are freed with them, so where updates are increments observers count
too.
"""

from collections.abc import Iterable, Sequence

from islands.protocol.identities import (
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Version,
)
from islands.protocol.messages.training import FragmentRequest, FragmentUpdate, Merged
from islands.protocol.settings.choices import Trigger
from islands.protocol.syncer.actions import DropContribution, InstallSeed, ReleaseValues, SendValue
from islands.protocol.syncer.contribution_admission import record_fate
from islands.protocol.syncer.events import InitialRead, JournalFinished, MergeFinished, SeedArrived
from islands.protocol.syncer.members import LearnerRecord, stale_because
from islands.protocol.syncer.memory import EVENTS, ClosingStage, SyncerMemory
from islands.protocol.syncer.rounds import Round
from islands.protocol.syncer.timeouts import doubled_s
from islands.protocol.syncer.versions import Published, Seeding, increments_since, newest_of
from islands.protocol.tape import round_entries
from islands.protocol.tape.process_entries import KeptOut

SEED_ROUND = -1

SEED_REPEATS = 5
"""Repeated requests without a new fragment, each after twice the wait, before another learner is
asked."""

BELATED_INTERVALS = 2
"""Steps beyond so many intervals, in a closing round, were in no value that anybody trained on."""


def values_may_come(core: SyncerMemory, now_s: float) -> bool:
    """Return whether a file is read, a learner was asked, or members may bring what they hold."""
    versions = core.versions
    unread = versions.initial and versions.read is None
    returns = versions.returns_until_s is not None and now_s < versions.returns_until_s
    return versions.seeding is not None or unread or returns


def request_seed(core: SyncerMemory, now_s: float) -> None:
    """Ask for version 0 if the run has none: a member that outlived its journal, or any learner.

    Instead of the latter, a version 0 that was read from a file is installed. A learner whose
    offer was refused is asked again only after the others.
    """
    versions = core.versions
    if core.seeded or core.closing is not None or values_may_come(core, now_s):
        return
    returns_until_s = versions.returns_until_s
    able = []
    if core.any_learner("seed", _may_seed):
        known = (core.members.learners[name] for name in core.names())
        able = [learner for learner in known if _may_seed(learner)]
    least = min((one.seeds_refused for one in able), default=0)
    able = [one for one in able if one.seeds_refused == least]
    kept = {one.name: one.kept for one in able if one.kept and returns_until_s is not None}
    if versions.read is not None and not kept:
        _install_read(core, versions.read, now_s)
        return
    if not able:
        return
    chosen = core.members.learners[newest_of(kept)] if kept else able[0]
    promised = kept.get(chosen.name, ())
    versions.begin_seeding(Seeding(chosen.name, chosen.incarnation, now_s, promised=promised))
    if promised:
        held = sorted({str(one.version) for one in promised})
        core.record(round_entries.TakenBack(chosen.name, held, len(kept)))
    _ask_for_missing(core, now_s)


def _may_seed(learner: LearnerRecord) -> bool:
    return learner.role is Role.LEARNER and learner.phase is Phase.HEALING and learner.reachable


def repeat_request(core: SyncerMemory, now_s: float, interval_s: float) -> None:
    seeding = core.versions.seeding
    if seeding is None:
        return
    if len(seeding.digests) > seeding.had:
        seeding.had, seeding.times, seeding.asked_s = len(seeding.digests), 0, now_s
    if now_s - seeding.asked_s >= doubled_s(interval_s, seeding.times) or seeding.refused:
        _give_up_late(core, seeding)
        seeding.times += 1
        _ask_for_missing(core, now_s)


def _ask_for_missing(core: SyncerMemory, now_s: float) -> None:
    """Ask the seeding learner (again) for what has not arrived; end a fetch that was given up."""
    seeding = core.versions.seeding
    if seeding is None or seeding.journalled is not None:
        return
    if seeding.refused:
        core.members.learners[seeding.name].seeds_refused += 1
        core.versions.end_seeding()
        return
    seeding.asked_s = now_s
    missing = [index for index in range(seeding.asked) if index not in seeding.digests]
    _ask_for(core, seeding, [*missing, *seeding.ask_further(core.fragments)])


def _ask_for(core: SyncerMemory, seeding: Seeding, fragments: Iterable[int]) -> None:
    connection = core.members.learners[seeding.name].connection
    for index in fragments:
        assert connection is not None, "the seeding learner is reachable"
        request = FragmentRequest(core.durable.epoch, FragmentIndex(index), core.versions.seedings)
        core.send(connection, request)


def _give_up_late(core: SyncerMemory, seeding: Seeding) -> None:
    """Give up a learner that was asked often and sent nothing new, if another one is able.

    A large seed takes long over a slow link, and the next learner's link may be as slow. So a
    learner that was given up is asked once more often in its next turn, for about twice as long.
    """
    if seeding.journalled is not None or seeding.refused:
        return
    late = core.members.learners[seeding.name]
    others = (one for one in core.members.learners.values() if one is not late)
    if not any(map(_may_seed, others)) or seeding.times < SEED_REPEATS + late.seeds_refused:
        return
    seeding.refused = True
    core.record(
        round_entries.SeedLate(
            name=seeding.name,
            asked=1 + seeding.times,
            arrived=len(seeding.digests),
            fragments=core.fragments,
        )
    )


@EVENTS.handles(InitialRead)
def on_initial_read(core: SyncerMemory, event: InitialRead, _now_s: float) -> None:
    core.versions.keep_initial(event.digests)


@EVENTS.handles(SeedArrived)
def on_seed(core: SyncerMemory, event: SeedArrived, _now_s: float) -> None:
    """Admit a fragment of the initial value; once all have arrived, they are version 0."""
    seed, seeding = event.seed, core.versions.seeding
    if seeding is None or seeding.journalled is not None:
        return
    sender = (seed.epoch, seed.name, seed.incarnation)
    if sender != (core.durable.epoch, seeding.name, seeding.incarnation):
        return
    if not 0 <= seed.fragment < core.fragments:
        return
    digest = seeding.promised[seed.fragment].digest if seeding.promised else seed.digest
    if not event.intact or seed.digest != digest:
        why = "it is not what was promised" if event.intact else "it is damaged or not finite"
        seeding.refused = True
        core.members.learners[seeding.name].kept = ()  # its promise of them does not count any more
        what = f"fragment {seed.fragment} of version 0"
        core.record(KeptOut(seed.name, what, why))
        return
    seeding.digests[seed.fragment] = seed.digest
    if len(seeding.digests) < core.fragments:
        _ask_for(core, seeding, seeding.ask_further(core.fragments))
        return
    _install(core, seeding)


def _install_read(core: SyncerMemory, digests: tuple[str, ...], now_s: float) -> None:
    by_fragment = dict(enumerate(digests))
    seeding = Seeding(LearnerName(""), Incarnation(0, 0), now_s, by_fragment)
    core.versions.begin_seeding(seeding, asks=False)
    _install(core, seeding)


def _install(core: SyncerMemory, seeding: Seeding) -> None:
    version = Version(core.durable.epoch, 0)
    digests = tuple(seeding.digests[index] for index in range(core.fragments))
    core.actions.append(InstallSeed(version, digests))
    core.record(round_entries.Seeded(seeding.name, str(version)))
    seeding.journalled = 0
    _journal_next(core, seeding)


def _journal_next(core: SyncerMemory, seeding: Seeding) -> None:
    index = seeding.journalled
    assert index is not None, "the seed is complete"
    version = Version(core.durable.epoch, 0)
    core.durable.make(index, Published(version, seeding.digests[index], SEED_ROUND))
    core.write_fragment(index)


def journal_seed(core: SyncerMemory, seeding: Seeding, now_s: float) -> None:
    """Journal the next fragment of version 0; when all are durable, commit them together."""
    assert seeding.journalled is not None, "the seed is complete"
    seeding.journalled += 1
    if seeding.journalled < core.fragments:
        _journal_next(core, seeding)
        return
    core.versions.end_seeding()
    for index, newest in enumerate(core.durable.published):
        assert newest is not None, "every fragment is journalled"
        core.versions.commit(index, newest)
    send_to_all(core, list(range(core.fragments)), now_s)


def in_time_fraction(steps: int, usual_steps: int, interval_steps: float) -> float:
    """Return the fraction of a closing contribution that fits into a few intervals.

    Else a learner that was cut off for long would outweigh all others. Where others stepped alone
    for as long, or there are none, all of it counts: `usual_steps` is the lower median of its
    round.
    """
    return min(1.0, BELATED_INTERVALS * max(usual_steps, interval_steps) / steps)


@EVENTS.handles(MergeFinished)
def on_merged(core: SyncerMemory, event: MergeFinished, _now_s: float) -> None:
    """Account for a merge that was computed; the value and the accounts become durable together."""
    fragment, number, facts = event.fragment, event.round, event.facts
    round_ = core.rounds.open[fragment]
    assert round_.number == number, "a fragment has one round at a time"
    durable = core.durable
    version = Version(durable.epoch, round_.version.number + 1)
    belated = [_apply(core, round_, name, version) for name in sorted(round_.arrived)]
    settled = durable.ledger.totals[fragment].settled
    durable.make(fragment, Published(version, facts.digest, number, settled))
    made = facts.increment
    if core.versions.increments:
        core.versions.increments[fragment].made(round_.version, version, made)
    durable.merges += 1
    durable.present_sum += len(durable.ledger.books)
    round_.journal()
    core.record(
        round_entries.Merged(
            round=number,
            fragment=fragment,
            version=str(version),
            contributions=len(round_.arrived),
            participants=sorted(round_.arrived),
            tokens=[round_.arrived[name].contribution.tokens for name in sorted(round_.arrived)],
            steps=[round_.arrived[name].contribution.steps for name in sorted(round_.arrived)],
            weights=list(facts.weights),
            norms=list(facts.norms),
            direction_norm=facts.direction_norm,
            cosine=facts.cosine_to_previous,
            digest=facts.digest,
            merged_tokens=sum(one.contribution.tokens for one in round_.arrived.values()),
            clock=core.durable.clock,
            asked=len(round_.asked),
            learners=core.learner_count,
            opened_s=round_.opened_s,
            closed_s=round_.closed_s,
            increment_bytes=None if made is None else made.size_bytes,
            remainder_norm=None if made is None else made.remainder_norm,
            run_merges=durable.merges,
            run_applied=durable.ledger.applied,
            run_processed=durable.ledger.processed,
            behind=[_staleness(round_, name) for name in sorted(round_.arrived)],
            belated=belated if any(belated) else None,
        )
    )
    core.write_fragment(fragment)


def _apply(core: SyncerMemory, round_: Round, name: LearnerName, version: Version) -> int:
    """Account for one contribution; return those of its tokens that only the end merged."""
    contribution = round_.arrived[name].contribution
    ticket = contribution.ticket
    merged = Merged(ticket.epoch, ticket.round, contribution.steps, contribution.tokens)
    core.durable.ledger.apply(name, ticket.incarnation, round_.fragment, merged, version)
    core.durable.staleness_sum += _staleness(round_, name)
    core.durable.participants_sum += 1
    belated = 0
    if core.closing is not None:
        over = max(0, contribution.steps - BELATED_INTERVALS * core.settings.interval_steps)
        belated = contribution.tokens * over // contribution.steps
        core.durable.belated_tokens += belated
    core.actions.append(DropContribution(ticket))
    record_fate(core, contribution, Fate.APPLIED, version=str(version))
    return belated


def _staleness(round_: Round, name: LearnerName) -> int:
    return round_.version.number - round_.arrived[name].contribution.base.number


@EVENTS.handles(JournalFinished)
def on_journalled(core: SyncerMemory, event: JournalFinished, now_s: float) -> None:
    """Commit what the records so far hold, now that they are durable, and send it."""
    for fragment in core.journal.take_durable(event.sequence):
        if core.seeded:
            _commit(core, fragment, now_s)
    seeding = core.versions.seeding
    if seeding is not None and seeding.journalled is not None and not core.journal.journalling:
        journal_seed(core, seeding, now_s)
    for name, granted in core.journal.take_grants(event.sequence).items():
        learner = core.members.learners.get(name)
        if learner is not None and learner.incarnation == granted.incarnation:
            core.send(learner.connection, granted)


def _commit(core: SyncerMemory, fragment: int, now_s: float) -> None:
    newest = core.durable.published[fragment]
    assert newest is not None, "what is journalled has a version"
    core.versions.commit(fragment, newest)
    round_ = core.rounds.remove(fragment)
    core.went_forward()
    core.rounds.await_adoption(fragment, newest.version, round_)
    core.record(round_entries.Committed(fragment, str(newest.version), newest.digest))
    send_to_all(core, [fragment], now_s)


def release_old_values(core: SyncerMemory, fragments: Iterable[int]) -> None:
    for fragment in fragments:
        kept = core.versions.kept[fragment]
        if not kept.older_held or fragment in core.rounds.open or _needed(core, fragment):
            continue
        # where nothing is rebased, bases are admitted without their values
        kept.release(forget=core.settings.rebases)
        if core.versions.increments:
            core.versions.increments[fragment].release()
        core.actions.append(ReleaseValues(FragmentIndex(fragment), core.version(fragment)))


def _needed(core: SyncerMemory, fragment: int) -> bool:
    kept, counted = core.versions.kept[fragment], bool(core.versions.increments)

    def behind(learner: LearnerRecord) -> bool:
        held = learner.holds(fragment)
        counts = counted or learner.role is Role.LEARNER
        return counts and held != kept.newest and held in kept

    if core.any_learner(f"holds an old value of fragment {fragment}", behind) or kept.awaited:
        return True
    return len(core.durable.ledger.books) > len(core.members.index.learners)


def asks_all(core: SyncerMemory) -> bool:
    return core.settings.trigger is Trigger.PACE or core.closing is not None


def is_owed(core: SyncerMemory, learner: LearnerRecord, fragment: int) -> bool:
    """Return whether a learner that does not hold the newest value of a fragment is to get it.

    Where learners open rounds those get it whose contribution it contains, and those who could
    not contribute without it: who has no base, or one that is too old. At the end of the run
    everybody gets it, once no round of the fragment is to come.
    """
    if core.settings.trigger is Trigger.PACE or learner.role is not Role.LEARNER:
        return True
    if learner.phase is Phase.HEALING:
        return True
    closing = core.closing
    if closing is not None and closing.stage is not ClosingStage.DRAINING:
        over = fragment not in closing.left and fragment not in core.rounds.open
        if over:
            return True
    return not _is_enough(core, learner, fragment, learner.holds(fragment))


def is_under_way(core: SyncerMemory, learner: LearnerRecord, fragment: int) -> bool:
    """Return whether a value that is enough for a learner was sent, and is not adopted yet.

    A newer one is not sent on top of it: the learner is to begin its turn from one value.
    """
    sent, held = learner.sent.get(fragment), learner.holds(fragment)
    if asks_all(core) or sent is None:
        return False
    if not sent.times:
        return False  # it was sent over an earlier link
    adopted = held is not None and held >= sent.version
    return not adopted and _is_enough(core, learner, fragment, sent.version)


def _is_enough(
    core: SyncerMemory, learner: LearnerRecord, fragment: int, base: Version | None
) -> bool:
    merged = core.durable.ledger.merged_version(learner.name, fragment)
    if merged is not None and merged > core.version(fragment):
        merged = None  # that value is being journalled, and is sent then
    return stale_because(base, kept=core.versions.kept[fragment], merged=merged) is None


def send_to_all(core: SyncerMemory, fragments: list[int], now_s: float) -> None:
    for name in core.names():
        learner = core.members.learners[name]
        for fragment in fragments if learner.adopting else ():
            if is_owed(core, learner, fragment) and not is_under_way(core, learner, fragment):
                send_update(core, learner, fragment, now_s)


def send_update(core: SyncerMemory, learner: LearnerRecord, fragment: int, now_s: float) -> None:
    """Send a fragment's committed version, and which of the receiver's work it contains."""
    published = core.versions.published[fragment]
    if published is None or learner.connection is None:
        return
    again = learner.sending(fragment, published.version, now_s)
    held, newest = None if again else learner.holds(fragment), published.version
    message = FragmentUpdate(
        epoch=core.durable.epoch,
        fragment=FragmentIndex(fragment),
        version=newest,
        round=published.round,
        digest=published.digest,
        clock=core.durable.clock,
        merged=core.durable.ledger.merged_into(learner.name, fragment, newest),
        since=increments_since(core.versions.increments, fragment, held, newest, core.settings),
        tokens=published.tokens,
    )
    core.actions.append(SendValue(learner.connection, message))


def send_lacking(
    core: SyncerMemory,
    learner: LearnerRecord,
    now_s: float,
    interval_s: float,
    digests: Sequence[str] | None = None,
) -> None:
    """Send a learner the versions that it lacks, or (by `digests`) whose values differ."""
    if not learner.adopting:
        return
    for index, published in enumerate(core.versions.published):
        if published is None:
            continue
        if learner.holds(index) == published.version:
            if digests is None or digests[index] == published.digest:
                continue
        elif not is_owed(core, learner, index):
            continue
        sent = learner.sent.get(index)
        newer = sent is None or sent.version < published.version
        newer = newer and not is_under_way(core, learner, index)
        if newer or (sent is not None and now_s >= sent.due_s(interval_s)):
            send_update(core, learner, index, now_s)
