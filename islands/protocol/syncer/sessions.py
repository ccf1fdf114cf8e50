"""Sessions: the links of peers, the supervisor's view of them, and messages from peer to peer.

Fencing: an incarnation that ended never comes back. The syncer learns of its end from the
supervisor, or by meeting a higher incarnation of the same name, and remembers it in the journal.

The syncer names a **donor**, whose inner moments a restarted learner may ask for, and forwards
messages between the two (protocol §8). A sender's name is the one that its link was admitted under.
Where no donor was named, as after a restart of the syncer, the donor of an incarnation that has not
stepped is the one that it asks first. Whole states are large, so a name gets a donor
`DONATIONS_MAX` times within `WRONG_WINDOW_S`; a fresh or unhealed learner never donates.
"""

from islands.protocol.errors import OutdatedError
from islands.protocol.identities import LearnerName, Role, Status
from islands.protocol.messages.membership import (
    RUN_OVER,
    Evicted,
    Leave,
    Member,
    MembershipChanged,
    Refused,
    Stop,
)
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.messages.training import (
    FinalRound,
    Hello,
    Paused,
    StateOffer,
    StateRequest,
    Welcome,
)
from islands.protocol.sessions import Received, claimed_name
from islands.protocol.syncer import accounts, events
from islands.protocol.syncer.accounts import close_accounts, end, retire
from islands.protocol.syncer.actions import Dismiss
from islands.protocol.syncer.closing import begin_closing, set_paused
from islands.protocol.syncer.commits import send_lacking
from islands.protocol.syncer.journalling import goes_on_from_a_copy
from islands.protocol.syncer.members import LearnerRecord, may_donate
from islands.protocol.syncer.memory import EVENTS, HANDLERS, SyncerMemory
from islands.protocol.syncer.plausibility import news_of
from islands.protocol.syncer.pulls import AdaptivePrecision
from islands.protocol.syncer.rounds import Stage
from islands.protocol.syncer.scheduling import ask_later
from islands.protocol.syncer.timeouts import end_reason
from islands.protocol.tape import member_entries, process_entries
from messaging.plain_text import plain

SHOWN = 80
"""Most characters of a peer's text in a refusal."""


def end_peer(core: SyncerMemory, event: events.PeerEvent, wrong: str, now_s: float) -> None:
    """End the incarnation, or at least the link, of a peer whose message could not be handled."""
    match event:
        case (
            events.LinkOpened(hello=message)
            | Received(message=message)
            | events.ContributionArrived(contribution=message)
            | events.SeedArrived(seed=message)
        ):
            name = LearnerName(claimed_name(message) or "")
    connection = None if isinstance(event, events.SeedArrived) else event.connection
    learner = core.members.learners.get(name)
    if learner is not None:
        accounts.dismiss_wrong(core, learner, wrong, now_s)
    elif connection is not None:
        core.record(member_entries.WrongReport(name, wrong))
        reason = f"what it said cannot be handled: {wrong}"
        core.actions.append(Dismiss(connection, Refused(name, reason, retry=False)))


@EVENTS.handles(events.LinkOpened)
def on_link_opened(core: SyncerMemory, event: events.LinkOpened, now_s: float) -> None:
    """Open a session, or dismiss the peer with a sentence.

    A proof of a newer start of the syncer ends this one.
    """
    hello, connection = event.hello, event.connection
    if core.over:
        stop, over = Stop(core.durable.finished or ""), Refused(hello.name, RUN_OVER, retry=False)
        core.actions.append(Dismiss(connection, stop if event.trusted else over))
        return
    if event.trusted and event.fenced:
        mend = (
            "a syncer has gone on from a copy of this journal, which is outdated; go back to a "
            "checkpoint (--resume) if that other one is lost, too"
            if goes_on_from_a_copy(hello.epoch_seen, core.durable.epoch)
            else "a newer syncer runs elsewhere, or this journal is an older copy; end the other "
            "one, and start this one again"
        )
        raise OutdatedError(
            f"{hello.name} follows another start of the syncer, of epoch {hello.epoch_seen}, and "
            f"this one has {core.durable.epoch}, so it ends: {mend}"
        )
    refusal = _refusal(core, hello, now_s, trusted=event.trusted)
    if refusal is not None:
        core.actions.append(Dismiss(connection, refusal))
        core.record(process_entries.Refused(hello.name, refusal.reason))
        return
    learner = core.members.learners.get(hello.name)
    if learner is not None and learner.connection is not None and connection < learner.connection:
        notice = Refused(hello.name, "a newer link is open", retry=True)
        core.actions.append(Dismiss(connection, notice))
        return
    who = None if learner is None else (learner.connection, learner.incarnation)
    if who == (connection, hello.incarnation):
        return  # a hello is answered once
    if learner is not None and learner.incarnation < hello.incarnation:
        retire(core, hello.name, "a newer incarnation said hello")
        learner = None
    if learner is None:
        learner = _new_record(core, hello)
    learner.opened(connection, now_s)
    kept = tuple(one for one in hello.kept if one is not None)
    learner.kept = kept if len(kept) == len(hello.kept) == core.fragments else ()
    core.touch(hello.name)
    core.send(connection, _welcome(core, learner, hello, now_s))
    if core.closing is not None:
        core.send(connection, FinalRound(core.durable.epoch, core.closing.reason))
    core.record(member_entries.Linked(hello.name, str(hello.incarnation)))
    before, report = learner.progress, hello.progress
    if not accounts.goes_back(before, report, news_of(before, report)):
        accounts.admit_report(core, learner, report)
    interval_s = core.resend_s(learner.exchange.adoptions_s.value)
    send_lacking(core, learner, now_s, interval_s, hello.digests)
    if learner.role is Role.LEARNER:
        core.send(connection, Paused(core.durable.epoch, core.durable.paused))
        if hello.name not in core.journal.grants:
            core.send(connection, core.grant_of(learner.name))
        _ask_again(core, learner, now_s)


def _refusal(
    core: SyncerMemory, hello: Hello, now_s: float, *, trusted: bool
) -> Refused | Evicted | None:
    def refused(reason: str) -> Refused:
        return Refused(hello.name, reason, retry=False)

    if hello.protocol != PROTOCOL:
        return refused(
            f"protocol {hello.protocol} is not spoken here, this syncer speaks {PROTOCOL}"
        )
    if hello.run != core.settings.run:
        return refused(f"this is run {core.settings.run!r}, not {plain(hello.run, SHOWN)!r}")
    if not trusted:
        # Its supervisor may be about to have it join anew.
        reason = f"the credential of {hello.name} is not signed by this run's supervisor"
        return Refused(hello.name, reason, retry=True)
    if hello.fingerprint != core.fingerprint:
        shown = plain(hello.fingerprint, SHOWN)
        return refused(f"layout {shown} differs from the run's {core.fingerprint}")
    counts = (len(hello.progress.fragments), len(hello.digests))
    if counts != (core.fragments, core.fragments):
        offered = f"{counts[0]} fragments and {counts[1]} digests"
        return refused(f"{offered}, the run has {core.fragments} fragments")
    who = (hello.progress.name, hello.progress.incarnation)
    if who != (hello.name, hello.incarnation):
        return refused(f"its report is of {who[0]}/{who[1]}")
    known = core.members.learners.get(hello.name)
    if known is not None and known.role is not hello.role:
        return refused(f"{hello.name} is a {known.role.value}, not a {hello.role.value}")
    if hello.epoch_seen > core.durable.epoch:
        return refused(f"it names epoch {hello.epoch_seen} and cannot prove it")
    if _fenced(core, hello):
        return Evicted(hello.name, hello.incarnation, "this incarnation has ended")
    wrong = _wrong_because(core, hello) if hello.role is Role.LEARNER else None
    return None if wrong is None else _part(core, hello, wrong, now_s)


def _part(core: SyncerMemory, hello: Hello, wrong: str, now_s: float) -> Refused | Evicted:
    """Return the last message to a peer whose books differ from ours; the excess is in no book."""
    book = core.durable.ledger.books.get(hello.name)
    same = book is not None and book.incarnation == hello.incarnation
    unknown = hello.progress.tokens - (book.processed if book is not None and same else 0)
    return accounts.last_word(
        core, hello.name, hello.incarnation, wrong, now_s, unknown_tokens=unknown
    )


def _wrong_because(core: SyncerMemory, hello: Hello) -> str | None:
    report, known = hello.progress, core.members.learners.get(hello.name)
    same = known is not None and known.incarnation == hello.incarnation
    before = known.progress if known is not None and same else None
    news = news_of(before, report)
    if before is not None and accounts.goes_back(before, report, news):
        return None  # an old report, delivered once more, is not taken in
    return accounts.wrong_because(core, report, before, news)


def _fenced(core: SyncerMemory, hello: Hello) -> bool:
    """Return whether an incarnation has ended, is followed by a newer one, or is another process.

    A process that holds less than its incarnation was known to hold is another one: a supervisor
    that lost its folder gives incarnations that were given before.
    """
    known, book = core.members.learners.get(hello.name), core.durable.ledger.books.get(hello.name)
    newer = [record.incarnation for record in (known, book) if record is not None]
    same = book is not None and book.incarnation == hello.incarnation
    reads = hello.role is not Role.LEARNER  # an observer never has an account to be fenced from
    ended = core.durable.fence.ended(hello.name, hello.incarnation, open_account=same or reads)
    if same and known is None and core.durable.ledger.forgot(hello.progress):
        return True
    return ended or any(hello.incarnation < incarnation for incarnation in newer)


def _new_record(core: SyncerMemory, hello: Hello) -> LearnerRecord:
    levels = core.members.levels
    precision = AdaptivePrecision(levels, len(levels) - 1)
    learner = LearnerRecord(
        hello.name, hello.role, hello.incarnation, hello.progress, None, precision
    )
    core.members.add(learner)
    core.versions.note_back(hello.name)
    if hello.role is not Role.LEARNER:
        return learner
    durable = core.durable
    book = durable.ledger.books.get(hello.name)
    if book is not None and book.incarnation < hello.incarnation:
        close_accounts(core, hello.name)
        book = None
    if book is None:
        durable.ledger.open(hello.name, hello.incarnation)
        durable.leases.open(hello.name, hello.incarnation)
        durable.rejoins += durable.fence.knows(hello.name)
    return learner


def _welcome(core: SyncerMemory, learner: LearnerRecord, hello: Hello, now_s: float) -> Welcome:
    versions = tuple(None if held is None else held.version for held in core.versions.published)
    donor = name_donor(core, learner, hello, now_s)
    return Welcome(core.durable.epoch, versions, donor, core.epoch_proof)


def _ask_again(core: SyncerMemory, learner: LearnerRecord, now_s: float) -> None:
    """Ask a learner whose link came back for what it has not answered; its excuse is over."""
    for round_ in core.rounds.open.values():
        collecting = round_.stage is Stage.COLLECTING
        if collecting and learner.name in round_.asked and learner.name not in round_.arrived:
            if learner.answers.has(core.durable.epoch, round_.number):
                round_.excuse(learner.name, "its answer was refused")
            elif core.ineligible(learner.name, round_.fragment) is None:
                ask_later(core, round_, learner, now_s)
            else:
                round_.excuse(learner.name, "link reopened, not eligible yet")


@EVENTS.handles(events.LinkClosed)
def on_link_closed(core: SyncerMemory, event: events.LinkClosed, now_s: float) -> None:
    """Handle the end of a link; an observer has no account to come back to, so it is forgotten."""
    name = LearnerName(event.name)
    learner = core.members.learners.get(name)
    if learner is None or learner.connection != event.connection:
        return
    if learner.role is not Role.LEARNER:
        core.members.remove(name)
    else:
        learner.lost()
        _excuse_everywhere(core, name, "link down")
        core.versions.forget_seeder(name)
    core.touch(name)
    core.record(member_entries.Unlinked(name))
    times = None if core.closing is not None else learner.losses.lost(now_s)
    if times is not None:
        core.record(member_entries.LinkUnsteady(name, times))


def _excuse_everywhere(core: SyncerMemory, name: LearnerName, reason: str) -> None:
    for round_ in core.rounds.open.values():
        round_.excuse(name, reason)


@HANDLERS.handles(Leave)
def on_leave(core: SyncerMemory, leave: Leave, _connection: int, now_s: float) -> None:
    """End the incarnation of a learner that leaves, and the run once every learner has diverged."""
    learner = core.members.learners.get(leave.name)
    current = learner is not None and learner.incarnation == leave.incarnation
    if current:
        retire(core, leave.name, leave.reason)
    if not leave.diverged:
        if current:
            core.health.divergences.left(leave.name)
        return
    watch = core.health.divergences
    times = watch.diverged(leave.name, leave.incarnation, now_s, core.settings)
    core.record(member_entries.Diverged(leave.name, str(leave.incarnation), times))
    members = core.durable.ledger.books
    goes_on = core.closing is None and core.seeded and not core.durable.paused
    if watch.of_everyone(members) and goes_on:
        begin_closing(core, end_reason(core.settings), now_s)


@EVENTS.handles(MembershipChanged)
def on_membership(core: SyncerMemory, page: MembershipChanged, now_s: float) -> None:
    if not core.members.view.take(page):
        return
    if page.paused is not None:
        set_paused(core, paused=page.paused)
    for member in page.members:
        _fence_older(core, member)
        learner = core.members.learners.get(member.name)
        if learner is None or learner.incarnation != member.incarnation:
            continue
        if member.status.ended:
            retire(core, member.name, member.status.value)
        elif learner.status is not member.status:
            learner.status = member.status
            core.touch(member.name)
            core.record(member_entries.StatusChanged(member.name, member.status))
            if member.status is not Status.LIVE:
                _excuse_everywhere(core, member.name, member.status.value)
    _end_absent(core, now_s)


def _fence_older(core: SyncerMemory, member: Member) -> None:
    """End what the view ended or replaced: linked, known from the journal only, or never seen."""
    name, ended = member.name, member.status.ended
    learner = core.members.learners.get(name)
    if learner is not None and learner.incarnation >= member.incarnation:
        return
    if learner is not None:
        retire(core, name, "the supervisor admitted a newer incarnation")
    book = core.durable.ledger.books.get(name)
    if book is not None:
        if book.incarnation > member.incarnation:
            return
        if book.incarnation < member.incarnation or ended:
            close_accounts(core, name)
            core.journal.records.want()
    if ended:
        core.durable.fence.end(name, member.incarnation)


def _end_absent(core: SyncerMemory, now_s: float) -> None:
    """End incarnations that a restarted supervisor does not know, and so can never evict.

    Such a one was neither in the view nor linked for twice the time to an eviction. The view is
    examined once per heartbeat, and only if it is complete.
    """
    view, timing = core.members.view, core.settings.timing
    if not view.complete or now_s - view.looked_s < timing.scaled(timing.heartbeat_s):
        return
    view.looked_s = now_s
    patience_s = 2 * timing.scaled(timing.evict_s)
    for name in sorted(core.durable.ledger.books):
        learner = core.members.learners.get(name)
        if name in view.listed or (learner is not None and learner.connection is not None):
            core.members.present(name)
        elif core.members.away_s(name, now_s) >= patience_s:
            end(core, name, "the supervisor does not know it")


def name_donor(
    core: SyncerMemory, learner: LearnerRecord, hello: Hello, now_s: float
) -> LearnerName | None:
    """Return another learner for one that holds nothing while the run goes on; it may ask that one.

    That is the one with most tokens in its incarnation, whose moments have seen most; ties are
    broken by name. Tokens are bounded by what was granted. Steps are only a learner's claim: ranked
    by them, a liar would become everybody's donor.
    """
    holds_nothing = all(report.version is None for report in hello.progress.fragments)
    if hello.role is not Role.LEARNER or not holds_nothing:
        return None
    if not core.seeded or core.closing is not None:
        return None
    able = (one for one in core.members.learners.values() if may_donate(one))
    ranks = ((-one.progress.tokens, one.name) for one in able if one.name != hello.name)
    donor = min(ranks, default=(0, None))[1]
    if donor is None or not core.members.may_have_donor(hello.name, now_s):
        return None
    learner.donor = donor
    return donor


def route(
    core: SyncerMemory,
    connection: int,
    sender: str,
    recipient: str,
    body: StateRequest | StateOffer,
    now_s: float,
) -> int | None:
    """Return the connection over which to forward a message between peers, or None."""
    source = core.members.learners.get(LearnerName(sender))
    target = core.members.learners.get(LearnerName(recipient))
    if source is None or source.connection != connection or target is None or target is source:
        return None
    if Role.LEARNER is not source.role or Role.LEARNER is not target.role:
        return None
    if isinstance(body, StateOffer):
        return target.connection if target.donor == source.name else None
    own = body.incarnation == source.incarnation
    unnamed = own and source.donor is None and source.progress.steps == 0
    if unnamed and core.members.may_have_donor(source.name, now_s):
        source.donor = target.name
    return target.connection if own and source.donor == target.name else None
