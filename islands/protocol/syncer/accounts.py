"""Accounts of learners: reports are checked, tokens and leases granted, what is left given back.

A report that cannot be true ends its sender's incarnation. The sender's process begins a new
account under another one, since it may be honest: after the journal was restored from a copy, every
honest learner is ahead of the books. Tokens that the books do not know are noted on the tape alone.
Who is wrong `WRONGS_MAX` times within `WRONG_WINDOW_S`, by its reports or its contributions, is
refused for good.

What a learner needs (`leases.py`) follows from its own reports, so only learners that events
concerned since the last grants are examined. Each grant is journalled, and then sent.
"""

from collections.abc import Iterable, Sequence

from islands.protocol.identities import TRAINING, Incarnation, LearnerName, Phase, Role
from islands.protocol.messages.membership import Evicted, Refused, Stop
from islands.protocol.messages.training import Progress
from islands.protocol.syncer.actions import Dismiss
from islands.protocol.syncer.commits import release_old_values, send_lacking
from islands.protocol.syncer.contribution_admission import admit, withdraw
from islands.protocol.syncer.events import ContributionArrived
from islands.protocol.syncer.leases import OUTAGE_S, grant_steps
from islands.protocol.syncer.members import WRONG_WINDOW_S, WRONGS_MAX, LearnerRecord
from islands.protocol.syncer.memory import EVENTS, HANDLERS, SyncerMemory
from islands.protocol.syncer.plausibility import (
    believed_batch,
    believed_step_s,
    news_of,
    wrong_report,
)
from islands.protocol.tape.member_entries import Retired, WrongReport
from islands.protocol.tape.round_entries import BookClosed, DataEnded, Granted, LeaseReturned

STEP_TIME_MAX_S = 7 * 86400.0
"""No step takes longer. The syncer's timeouts and resend intervals follow from step times."""


@HANDLERS.handles(Progress)
def on_progress(core: SyncerMemory, progress: Progress, connection: int, now_s: float) -> None:
    learner = core.members.learners.get(progress.name)
    if learner is None or learner.connection != connection:
        return
    if learner.incarnation != progress.incarnation or len(progress.fragments) != core.fragments:
        return
    core.hear(learner, now_s)
    before = learner.progress
    news = news_of(before, progress)
    if goes_back(before, progress, news):
        return
    stepped = progress.steps - before.steps
    wrong = wrong_because(core, progress, before, news) if learner.role is Role.LEARNER else None
    if wrong is not None:
        dismiss_wrong(core, learner, wrong, now_s)
        return
    if learner.role is Role.LEARNER:
        core.health.divergences.heard(progress.name, progress.steps, now_s, core.settings)
        if before.phase in TRAINING and stepped:
            core.rounds.pace.progressed(progress.name, stepped)
    admit_report(core, learner, progress)
    if stepped:
        _time_step(core, learner, stepped, now_s)
    _count_adoptions(core, learner, before, news, now_s)
    release_old_values(core, news)
    if before.phase is Phase.COMPILING and learner.adopting:
        timing = core.settings.timing
        send_lacking(core, learner, now_s, timing.scaled(timing.resend_s))


def _time_step(core: SyncerMemory, learner: LearnerRecord, stepped: int, now_s: float) -> None:
    """Measure a step time, as far as it can be believed; the pace-setting learner's is ξ_step.

    Which learner sets the pace changes with every report, and where all step alike it may never be
    the one that reports: so the last step of whoever does now is measured, unless it was before.
    """
    timing, claimed_s = core.settings.timing, learner.progress.step_time_s
    elapsed_s, learner.stepped_s = now_s - learner.stepped_s, now_s
    if claimed_s <= 0:
        return
    slack_s = timing.scaled(timing.heartbeat_s)
    learner.step_s = believed_step_s(claimed_s, steps=stepped, elapsed_s=elapsed_s, slack_s=slack_s)
    setter = core.pace_setter()
    if setter is None:
        return
    pacing = core.members.learners[setter]
    if pacing.step_s > 0 and pacing.paced_steps != pacing.progress.steps:
        pacing.paced_steps = pacing.progress.steps
        core.rounds.durations.step_s.add(pacing.step_s)


def goes_back(before: Progress, progress: Progress, news: Iterable[int]) -> bool:
    """Return whether a report is older than the last one: a link may deliver one twice."""
    if before.incarnation != progress.incarnation:
        return False
    if progress.steps < before.steps or progress.tokens < before.tokens:
        return True
    for index in news:
        held, now = before.fragments[index], progress.fragments[index]
        if held.version is not None and (now.version is None or now.version < held.version):
            return True
        if now.overwritten_tokens < held.overwritten_tokens:
            return True
    return False


def dismiss_wrong(core: SyncerMemory, learner: LearnerRecord, wrong: str, now_s: float) -> None:
    word = last_word(core, learner.name, learner.incarnation, wrong, now_s)
    retire(core, learner.name, word.reason, word)


def last_word(
    core: SyncerMemory,
    name: LearnerName,
    incarnation: Incarnation,
    wrong: str,
    now_s: float,
    *,
    unknown_tokens: int = 0,
) -> Evicted | Refused:
    """Return the last message to the sender of a false report; no book has `unknown_tokens`."""
    core.record(WrongReport(name, wrong, unknown_tokens))
    reason = f"its report cannot be true: {wrong}"
    refused = core.members.wrong_again(name, now_s)
    return _refusal(name, reason) if refused else Evicted(name, incarnation, reason)


def _refusal(name: LearnerName, reason: str) -> Refused:
    reason = f"{reason}; that is the time number {WRONGS_MAX} within {WRONG_WINDOW_S:.0f} s"
    return Refused(name, reason, retry=False)


@EVENTS.handles(ContributionArrived)
def on_contribution(core: SyncerMemory, event: ContributionArrived, now_s: float) -> None:
    """Admit a contribution; the last of too many that no honest learner sends refuses its name."""
    wrong, name = admit(core, event, now_s), event.contribution.name
    if wrong is not None and core.members.wrong_again(name, now_s):
        core.record(WrongReport(name, wrong))
        refusal = _refusal(name, f"its contribution is wrong: {wrong}")
        retire(core, name, refusal.reason, refusal)


def wrong_because(
    core: SyncerMemory, progress: Progress, before: Progress | None, news: Sequence[int]
) -> str | None:
    """Return why a report cannot be true, by the book and quota of its incarnation, or None."""
    if not 0 <= progress.step_time_s <= STEP_TIME_MAX_S:
        return f"a step time of {progress.step_time_s} s"
    holder = core.durable.leases.holders.get(progress.name)
    known = holder is not None and holder.incarnation == progress.incarnation
    granted = holder.quota_tokens if known and holder is not None else 0
    if progress.tokens > granted:
        return f"{progress.tokens} tokens were processed, {granted} granted"
    for index in news:
        held, published = progress.fragments[index].version, core.versions.published[index]
        newest = None if published is None else published.version
        if held is not None and (newest is None or newest < held):
            return f"fragment {index} holds version {held}, the newest here is {newest}"
    return wrong_report(before, progress, news) or core.durable.ledger.difference(progress)


def admit_report(core: SyncerMemory, learner: LearnerRecord, progress: Progress) -> None:
    learner.report(progress)
    core.touch(learner.name)
    if learner.role is Role.LEARNER:
        core.durable.ledger.report(progress)
        leases = core.durable.leases
        before = leases.barren_passes
        leases.reported(progress)
        passes = leases.barren_passes
        if passes.bit_length() > before.bit_length() or passes == 0 < before:
            core.record(DataEnded(passes, leases.shards))


def _count_adoptions(
    core: SyncerMemory, learner: LearnerRecord, before: Progress, news: Sequence[int], now_s: float
) -> None:
    """Measure how long values take to be adopted, and ξ_sync: from closing to the K-th report."""
    if learner.role is not Role.LEARNER:
        return
    for index in news:
        sent, held = learner.sent.get(index), learner.holds(index)
        if sent is not None and held == sent.version != before.fragments[index].version:
            learner.exchange.adoptions_s.add(now_s - sent.first_s, core.fragments)
            core.on_adopted(learner)
    if learner.phase is Phase.FINISHED is not before.phase:
        core.on_stopped(learner)
    for index in news:
        held, held_before = learner.holds(index), before.fragments[index].version
        core.rounds.count_adoption(index, held_before, held, now_s)


def grant(core: SyncerMemory, now_s: float) -> None:
    """Grant learners the data and tokens they need next."""
    core.update_indexes()
    for name in core.journal.take_ungranted():
        _top_up(core, name, now_s)


def _top_up(core: SyncerMemory, name: LearnerName, now_s: float) -> None:
    book, learner = core.durable.leases, core.members.learners.get(name)
    if name not in core.members.index.readers or name not in book.holders or learner is None:
        return
    if not learner.reachable:
        return
    progress, batch = learner.progress, believed_batch(learner.progress)
    holder = book.holders[name]
    unused_tokens, held = holder.unused_tokens, holder.leases
    granted = book.top_up(
        name,
        batch_tokens=batch,
        members=len(core.members.index.claimants),
        reading=len(core.members.index.readers),
        chunk_steps=_chunk_steps(core, learner),
        proven=progress.steps > 0
        or not core.any_learner("proven", lambda one: one.reads and one.progress.steps > 0),
    )
    core.journal.set_hungry(name, hungry=holder.unused_tokens < batch)
    if granted:
        leases = [(lease.pass_index, lease.shard, lease.position) for lease in holder.leases]
        core.record(Granted(name, str(holder.incarnation), holder.quota_tokens, leases))
        lasts_s = progress.step_time_s * unused_tokens / max(1, batch)
        short = lasts_s < OUTAGE_S / 2  # the syncer may crash the next moment
        needed = holder.leases is not held or name in core.journal.grants or short
        core.journal.records.want(now_s if needed else now_s + min(lasts_s, core.resend_s()) / 2)
        core.journal.granted(name)


def _chunk_steps(core: SyncerMemory, learner: LearnerRecord) -> int:
    """Return the steps of an ordinary grant; one after it stood still, until it has stepped."""
    if learner.name in core.health.idle and not learner.progress.steps:
        return 1
    return grant_steps(core.durable.leases.chunk_steps, learner.progress.step_time_s)


def retire(
    core: SyncerMemory,
    name: LearnerName,
    reason: str,
    notice: Refused | Evicted | Stop | None = None,
) -> None:
    """End an incarnation; after `Evicted`, its last message by default, it may join anew."""
    learner = core.members.remove(name)
    core.touch(name)
    if learner.connection is not None:
        evicted = Evicted(name, learner.incarnation, reason)
        core.actions.append(Dismiss(learner.connection, notice or evicted))
    withdraw(core, name)
    core.versions.forget_seeder(name)
    core.record(Retired(name, str(learner.incarnation), reason))
    if learner.role is Role.LEARNER:
        core.versions.note_gone(name, [report.version for report in learner.progress.fragments])
        close_accounts(core, name)
        core.journal.records.want()


def end(core: SyncerMemory, name: LearnerName, reason: str) -> None:
    """End an incarnation, linked or known from its account only."""
    if name in core.members.learners:
        retire(core, name, reason)
    else:
        close_accounts(core, name)
        core.journal.records.want()


def end_unsettled(core: SyncerMemory, reason: str) -> None:
    """At the run's end, end incarnations that are absent or have pending tokens, which are lost."""
    books = core.durable.ledger.books
    for name in sorted(books):
        learner = core.members.learners.get(name)
        if learner is None:
            close_accounts(core, name)
        elif not learner.reachable or any(map(books[name].pending, range(core.fragments))):
            retire(core, name, "the run ended without it", Stop(reason))


def close_accounts(core: SyncerMemory, name: LearnerName) -> None:
    """Fence an incarnation; its pending tokens are lost, its quota and its leases go back."""
    durable = core.durable
    book = durable.ledger.books[name]
    durable.fence.end(name, book.incarnation)
    durable.ledger.close(name)
    returned = durable.leases.close(name, book.processed)
    core.rounds.pace.forget(name)
    core.members.present(name)
    core.journal.gave_back(name)  # its unused quota may be granted to others
    incarnation = str(book.incarnation)
    core.record(BookClosed(name, incarnation, book.processed))
    for lease in returned:
        core.record(LeaseReturned(name, lease.pass_index, lease.shard, lease.position))
