"""Commits of new versions: journal first, then send; and when the values of old ones are freed.

Old values of a fragment stay while it has an open round, while a learner reports an older base that
is kept, while the process of an ended incarnation may come back with one, and while a learner of
the books has not said hello to this start of the syncer. So no contribution is refused because they
were freed, and a syncer mostly holds each value once, not `staleness_max` + 2 times. Increments
that lead on from old versions are freed with them, so where updates are increments observers count
too.
"""

from collections.abc import Iterable

from islands.protocol.identities import Fate, FragmentIndex, LearnerName, Role, Version
from islands.protocol.messages.training import Merged
from islands.protocol.syncer.actions import DropContribution, ReleaseValues
from islands.protocol.syncer.contribution_admission import record_fate
from islands.protocol.syncer.events import JournalFinished, MergeFinished
from islands.protocol.syncer.members import LearnerRecord
from islands.protocol.syncer.memory import EVENTS, SyncerMemory
from islands.protocol.syncer.recipients import send_to_all
from islands.protocol.syncer.rounds import Round
from islands.protocol.syncer.seeding import journal_seed
from islands.protocol.syncer.versions import Published
from islands.protocol.tape import round_entries

BELATED_INTERVALS = 2
"""Steps beyond so many intervals, in a closing round, were in no value that anybody trained on."""


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
