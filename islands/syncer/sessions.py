"""Who is here: links, membership, reports, the end of incarnations.

Fencing: an incarnation that ended never comes back. The syncer learns of its end from the
supervisor, or by meeting a higher incarnation of the same name, and remembers it in the journal.
"""

from islands.errors import RefusedError
from islands.identities import LearnerName, Phase, Role, Status
from islands.messages import (
    PROTOCOL,
    Evicted,
    FinalRound,
    Hello,
    Member,
    MembershipChanged,
    Progress,
    Refused,
    Welcome,
)
from islands.syncer.actions import Dismiss, Send
from islands.syncer.core import Core
from islands.syncer.roster import ENDED, LearnerRecord
from islands.syncer.rounds import Stage
from islands.syncer.scheduling import ask, excuse, withdraw


def open_link(core: Core, hello: Hello, connection: int, *, trusted: bool, now_s: float) -> None:
    """Admit a peer to this syncer, or dismiss it with a sentence that says what differs.

    Links are numbered in the order in which they were opened: a hello that comes late, over a link
    that its sender has replaced, changes nothing.

    Raises:
        RefusedError: the peer follows a syncer of a higher epoch; this one must end.
    """
    refusal = _refusal(core, hello, trusted=trusted)
    if refusal is not None:
        core.actions.append(Dismiss(connection, refusal))
        core.record("refused", name=hello.name, reason=refusal.reason)
        return
    if hello.epoch_seen > core.durable.epoch:
        message = f"{hello.name} follows a syncer of epoch {hello.epoch_seen}, a newer one"
        raise RefusedError(message)
    learner = core.learners.get(hello.name)
    if learner is not None and learner.connection is not None and connection < learner.connection:
        notice = Refused(hello.name, "a newer link is open", retry=True)
        core.actions.append(Dismiss(connection, notice))
        return
    if learner is not None and learner.incarnation < hello.incarnation:
        retire(core, hello.name, "a newer incarnation said hello")
        learner = None
    if learner is None:
        learner = _new_record(core, hello)
    learner.connection = connection
    learner.sent.clear()
    learner.unanswered.clear()
    core.actions.append(Send(connection, _welcome(core)))
    if core.closing is not None:
        core.actions.append(Send(connection, FinalRound(core.durable.epoch, core.closing.reason)))
    core.record("linked", name=hello.name, incarnation=str(hello.incarnation))
    _take_report(core, learner, hello.progress)
    _send_what_differs(core, learner, hello, now_s)
    if learner.role is Role.LEARNER:
        if hello.name not in core.grants:
            core.send_grant(learner)
        _ask_again(core, learner, now_s)


def _refusal(core: Core, hello: Hello, *, trusted: bool) -> Refused | Evicted | None:
    def refused(reason: str) -> Refused:
        return Refused(hello.name, reason, retry=False)

    if hello.protocol != PROTOCOL:
        return refused(
            f"protocol {hello.protocol} is not spoken here, this syncer speaks {PROTOCOL}"
        )
    if hello.run != core.settings.run:
        return refused(f"this is run {core.settings.run!r}, not {hello.run!r}")
    if not trusted:
        return refused(f"the credential of {hello.name} is not signed by this run's supervisor")
    if hello.fingerprint != core.fingerprint:
        return refused(f"layout {hello.fingerprint} differs from the run's {core.fingerprint}")
    told = (len(hello.progress.fragments), len(hello.digests))
    if told != (core.fragments, core.fragments):
        return refused(f"{told[0]} fragments, the run has {core.fragments}")
    if _fenced(core, hello):
        return Evicted(hello.name, hello.incarnation, "this incarnation has ended")
    return None


def _fenced(core: Core, hello: Hello) -> bool:
    """Whether this incarnation has ended, or a newer one of its name is known."""
    retired = core.durable.retired.get(hello.name)
    known, book = core.learners.get(hello.name), core.durable.ledger.books.get(hello.name)
    newer = [record.incarnation for record in (known, book) if record is not None]
    ended = retired is not None and hello.incarnation <= retired
    return ended or any(hello.incarnation < incarnation for incarnation in newer)


def _new_record(core: Core, hello: Hello) -> LearnerRecord:
    learner = LearnerRecord(hello.name, hello.role, hello.incarnation, hello.progress, None)
    core.learners[hello.name] = learner
    if hello.role is not Role.LEARNER:
        return learner
    durable = core.durable
    book = durable.ledger.books.get(hello.name)
    if book is not None and book.incarnation < hello.incarnation:
        _close_accounts(core, hello.name)
        book = None
    if book is None:
        durable.ledger.open(hello.name, hello.incarnation)
        durable.leases.open(hello.name, hello.incarnation)
        durable.rejoins += hello.name in durable.retired
    return learner


def _welcome(core: Core) -> Welcome:
    versions = tuple(None if held is None else held.version for held in core.published)
    return Welcome(core.durable.epoch, versions)


def _send_what_differs(core: Core, learner: LearnerRecord, hello: Hello, now_s: float) -> None:
    for index, published in enumerate(core.published):
        if published is None or not learner.adopting:
            continue
        held = learner.holds(index)
        if held != published.version or hello.digests[index] != published.digest:
            core.send_update(learner, index, now_s)


def _ask_again(core: Core, learner: LearnerRecord, now_s: float) -> None:
    """A link came back: its excuse is over, and pulls on the old link are asked again."""
    for round_ in core.rounds.values():
        collecting = round_.stage is Stage.COLLECTING
        if collecting and learner.name in round_.asked and learner.name not in round_.arrived:
            if core.ineligible(learner.name, round_.fragment) is None:
                round_.excused.pop(learner.name, None)
                ask(core, round_, learner, now_s)
            else:
                excuse(round_, learner.name, "link reopened, not eligible yet")


def close_link(core: Core, name: LearnerName, connection: int) -> None:
    """A link is gone; a newer link of the same peer is left alone."""
    learner = core.learners.get(name)
    if learner is None or learner.connection != connection:
        return
    learner.connection = None
    learner.unanswered.clear()
    _excuse_everywhere(core, name, "link down")
    _forget_seed(core, name)
    core.record("unlinked", name=name)


def _forget_seed(core: Core, name: LearnerName) -> None:
    """Who was to bring version 0 is gone; ask another, unless all of it is here."""
    seeding = core.seeding
    if seeding is not None and seeding.name == name and seeding.journalled is None:
        core.seeding = None


def _excuse_everywhere(core: Core, name: LearnerName, reason: str) -> None:
    for round_ in core.rounds.values():
        excuse(round_, name, reason)


def take_membership(core: Core, view: MembershipChanged, now_s: float) -> None:
    """Follow the supervisor's view; an older supervisor is ignored."""
    if view.supervisor_epoch < core.supervisor_epoch:
        return
    core.supervisor_epoch = view.supervisor_epoch
    for member in view.members:
        _fence_older(core, member)
        learner = core.learners.get(member.name)
        if learner is None or learner.incarnation != member.incarnation:
            continue
        if member.status in ENDED:
            core.durable.evictions += member.status is Status.EVICTED
            retire(core, member.name, member.status.value)
        elif learner.status is not member.status:
            learner.status = member.status
            core.record("status", name=member.name, status=member.status.value)
            if member.status is not Status.LIVE:
                _excuse_everywhere(core, member.name, member.status.value)
    _end_absent(core, view, now_s)


def _fence_older(core: Core, member: Member) -> None:
    """End what the view ended or replaced where no link tells: in the journal, or never seen."""
    name, ended = member.name, member.status in ENDED
    learner = core.learners.get(name)
    if learner is not None and learner.incarnation >= member.incarnation:
        return
    if learner is not None:
        retire(core, name, "the supervisor admitted a newer incarnation")
    book = core.durable.ledger.books.get(name)
    if book is not None:
        if book.incarnation > member.incarnation:
            return
        if book.incarnation < member.incarnation or ended:
            core.durable.evictions += member.status is not Status.LEFT
            _close_accounts(core, name)
            core.write_journal()
    if ended:
        fence = core.durable.retired.get(name, member.incarnation)
        core.durable.retired[name] = max(fence, member.incarnation)


def _end_absent(core: Core, view: MembershipChanged, now_s: float) -> None:
    """End incarnations that nobody can end any more.

    A supervisor that starts anew knows only those whose heartbeats it hears. Who died together
    with its predecessor is in no view, and would keep its quota and its shards for ever. Here the
    view decides as well: not in it, and no link, for twice the time to an eviction.
    """
    listed = {member.name for member in view.members}
    patience_s = 2 * core.settings.timing.scaled(core.settings.timing.evict_s)
    for name in sorted(core.durable.ledger.books):
        learner = core.learners.get(name)
        if name in listed or (learner is not None and learner.connection is not None):
            core.absent.pop(name, None)
        elif now_s - core.absent.setdefault(name, now_s) >= patience_s:
            del core.absent[name]
            core.durable.evictions += 1
            if learner is not None:
                retire(core, name, "the supervisor does not know it")
            else:
                _close_accounts(core, name)
                core.write_journal()


def retire(core: Core, name: LearnerName, reason: str) -> None:
    """End an incarnation: fence it, close its accounts, free what it held."""
    learner = core.learners.pop(name)
    if learner.connection is not None:
        evicted = Evicted(name, learner.incarnation, reason)
        core.actions.append(Dismiss(learner.connection, evicted))
    withdraw(core, name)
    _forget_seed(core, name)
    core.record("retired", name=name, incarnation=str(learner.incarnation), reason=reason)
    if learner.role is Role.LEARNER:
        _close_accounts(core, name)
        core.write_journal()


def end_unsettled(core: Core) -> None:
    """The run ends: what those who are not here, or are not done, did not get merged is lost."""
    books = core.durable.ledger.books
    for name in sorted(books):
        learner = core.learners.get(name)
        if learner is None:
            _close_accounts(core, name)
        elif not learner.reachable or any(map(books[name].pending, range(core.fragments))):
            retire(core, name, "the run ended without it")


def _close_accounts(core: Core, name: LearnerName) -> None:
    durable = core.durable
    book = durable.ledger.books[name]
    durable.retired[name] = book.incarnation
    durable.ledger.close(name)
    returned = durable.leases.close(name, book.processed)
    core.pace.forget(name)
    core.grants.pop(name, None)
    incarnation = str(book.incarnation)
    core.record("book_closed", name=name, incarnation=incarnation, processed=book.processed)
    for lease in returned:
        core.record(
            "lease_returned",
            name=name,
            pass_index=lease.pass_index,
            shard=lease.shard,
            position=lease.position,
        )


def take_progress(core: Core, progress: Progress, connection: int, now_s: float) -> None:
    """A learner's report; one on an old link or of another incarnation is ignored."""
    learner = core.learners.get(progress.name)
    if learner is None or learner.connection != connection:
        return
    if learner.incarnation != progress.incarnation or len(progress.fragments) != core.fragments:
        return
    before = learner.progress
    stepped = progress.steps - before.steps
    if stepped < 0 or progress.tokens < before.tokens:
        return
    if learner.role is Role.LEARNER and before.phase is Phase.STEPPING and stepped:
        core.pace.progressed(progress.name, stepped)
    _take_report(core, learner, progress)
    if core.pace.setter(core.ready()) == progress.name and progress.step_time_s > 0 and stepped:
        core.durations.step_s.add(progress.step_time_s)
    _count_adoptions(core, learner, before, now_s)
    if before.phase is Phase.COMPILING and learner.adopting:
        _send_all(core, learner, now_s)


def _send_all(core: Core, learner: LearnerRecord, now_s: float) -> None:
    """It has compiled: now it can adopt what was not worth sending before."""
    for index, published in enumerate(core.published):
        if published is not None and learner.holds(index) != published.version:
            core.send_update(learner, index, now_s)


def _take_report(core: Core, learner: LearnerRecord, progress: Progress) -> None:
    learner.report(progress)
    if learner.role is Role.LEARNER:
        core.durable.ledger.report(progress)
        core.durable.leases.reported(progress)


def _count_adoptions(core: Core, learner: LearnerRecord, before: Progress, now_s: float) -> None:
    """Measure ξ_sync: from closing a round to the K-th report of its adoption."""
    if learner.role is not Role.LEARNER:
        return
    for index in sorted(core.adoptions):
        adoption = core.adoptions[index]
        held, held_before = learner.holds(index), before.fragments[index].version
        newly = held is not None and held >= adoption.version
        if newly and (held_before is None or held_before < adoption.version):
            adoption.reports += 1
            if adoption.reports >= adoption.quorum:
                core.durations.sync_s.add(now_s - adoption.closed_s)
                del core.adoptions[index]
