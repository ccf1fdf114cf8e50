"""Admission: whether a contribution that arrived enters its round, and if not, its fate and why.

Protocol §6 has the checks in their order, of which the first that fails decides.
"""

from dataclasses import dataclass
from math import sqrt

from islands.protocol.identities import Fate, LearnerName, Role, Ticket
from islands.protocol.messages import training
from islands.protocol.syncer.actions import DropContribution
from islands.protocol.syncer.events import ContributionArrived
from islands.protocol.syncer.members import LearnerRecord, stale_because
from islands.protocol.syncer.memory import HANDLERS, SyncerMemory
from islands.protocol.syncer.plausibility import COPIES_MAX, Check, age_steps, wrong_steps
from islands.protocol.syncer.pulls import Pull, Transfer, budget_s
from islands.protocol.syncer.rounds import Admitted, Round, Stage
from islands.protocol.tape import member_entries, round_entries
from islands.protocol.tape.process_entries import KeptOut

OVERTAKEN = "a later pull of its fragment has ended"

LEARNING_RATE_MIN = 1e-12
"""Norms are divided by the learning rate, or by this, since a schedule may end at 0."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The fate of a contribution that is not admitted; `wrong` is what no honest learner sends."""

    fate: Fate
    reason: str
    wrong: bool = False


def refusal(
    check: Check, *, untrue: str | None, ticket_open: bool, stale: str | None
) -> Refusal | None:
    """Return the first failing check of protocol §6; None admits.

    `untrue` says why its steps or tokens cannot be true, `stale` why its base is too old.
    """
    if not ticket_open:
        return Refusal(Fate.LATE, "the round has closed")
    if stale is not None:
        return Refusal(Fate.STALE, stale)
    if untrue is not None:
        return Refusal(Fate.REJECTED, untrue, wrong=True)
    if not check.schema_ok:
        return Refusal(Fate.REJECTED, check.flaw or "schema", wrong=True)
    if not check.digest_ok:
        return Refusal(Fate.REJECTED, "digest", wrong=True)
    if not check.finite:
        return Refusal(Fate.REJECTED, "not finite", wrong=True)
    return None


def admit(core: SyncerMemory, event: ContributionArrived, now_s: float) -> str | None:
    """Admit a contribution to its round, or give it another fate.

    The first answer to a ticket stands, whatever link others come over. No answer is taken from an
    incarnation that has ended, since its accounts are closed, nor from an observer, which has none.
    An answer over a link that is gone is void, as its sender assumes: it decides nothing, and the
    pull, which is sent again over the next link, is still to be answered. Returns what is wrong
    with it if no honest learner sends such a one; that is counted (`accounts.py`).
    """
    contribution, connection, ticket = (
        event.contribution,
        event.connection,
        event.contribution.ticket,
    )
    learner = core.members.learners.get(ticket.name)
    observing = learner is not None and learner.role is not Role.LEARNER
    if learner is None or observing or learner.incarnation != ticket.incarnation:
        why = "observers do not contribute" if observing else "its incarnation has ended"
        core.record(_kept_out(ticket, why))
        _drop(core, ticket, connection)
        return None
    if connection != learner.connection:
        core.record(_kept_out(ticket, "it came over a link that is gone"))
        _drop(core, ticket, connection, others=True)
        return None
    if not 0 <= contribution.fragment < core.fragments:
        _drop(core, ticket, connection)
        return f"fragment {contribution.fragment} does not exist"
    round_ = core.rounds.open.get(contribution.fragment)
    known = learner.answers.has(ticket.epoch, ticket.round)
    copies = learner.answers.count(ticket.epoch, ticket.round, connection)
    if known or _admitted(core, ticket) is not None:
        core.record(round_entries.Duplicate(str(ticket), copies))
        _drop(core, ticket, connection)
        return f"{copies} answers to one pull" if copies > COPIES_MAX else None
    if ticket.epoch == core.durable.epoch:
        age_s = age_steps(contribution, learner.progress) * learner.step_s
        learner.exchange.ages_s.add(age_s, core.fragments)
        pull = end_pull(core, learner, ticket.round, contribution.fragment, now_s)
        if pull is not None:
            learner.exchange.answer(now_s - pull.first_s, core.fragments)
            _judge_arrived(core, learner, pull, now_s - event.inspected_s)
        abandoned_s = core.rounds.abandoned_s.get(ticket.round)
        learner.exchange.late_s = None if abandoned_s is None else now_s - abandoned_s
        core.members.touch(learner.name)
    refused = _refusal_of(core, learner, event, round_)
    if refused is not None or round_ is None:
        assert refused is not None, "without a round the ticket is not open"
        refuse(core, contribution, refused, connection)
        if round_ is not None and round_.asked.get(ticket.name) == ticket:
            round_.excuse(ticket.name, refused.reason)
        return refused.reason if refused.wrong else None
    rate = max(core.settings.learning_rate_at(core.durable.clock), LEARNING_RATE_MIN)
    steps = 1 if core.settings.gossip.on else contribution.steps  # all are of the whole run then
    norm_rate = event.check.norm / (sqrt(steps) * rate)
    round_.admit(ticket.name, Admitted(contribution, connection, norm_rate))
    core.record(round_entries.Arrived(str(ticket), contribution.tokens))
    core.went_forward(learner)
    return None


def _refusal_of(
    core: SyncerMemory, learner: LearnerRecord, event: ContributionArrived, round_: Round | None
) -> Refusal | None:
    contribution, ledger = event.contribution, core.durable.ledger
    fragment = contribution.fragment
    granted = core.durable.leases.holders[learner.name].quota_tokens
    untrue = wrong_steps(contribution, learner.progress, learner.marks)
    if not ledger.can_hold(learner.name, fragment, contribution, granted):
        untrue = "more tokens than were processed"
    if untrue is None:
        ledger.attest(learner.name, contribution.processed_tokens)
    ticket_open = (
        round_ is not None
        and round_.stage is Stage.COLLECTING
        and round_.asked.get(learner.name) == contribution.ticket
    )
    stale = stale_because(
        contribution.base,
        kept=core.versions.kept[fragment],
        merged=ledger.merged_version(learner.name, fragment),
    )
    return refusal(event.check, untrue=untrue, ticket_open=ticket_open, stale=stale)


def refuse(
    core: SyncerMemory,
    contribution: training.Contribution,
    refused: Refusal,
    connection: int | None,
) -> None:
    ticket = contribution.ticket
    core.actions.append(DropContribution(ticket))
    if not _discarded(core, contribution):
        ledger = core.durable.ledger
        ledger.claim(ticket.name, contribution.fragment, refused.fate, contribution.tokens)
    record_fate(core, contribution, refused.fate, reason=refused.reason)
    learner = core.members.learners[ticket.name]
    if connection is None:
        connection = learner.connection
    if connection is None:
        return
    fate = training.ContributionFate(ticket, contribution.fragment, refused.fate, refused.reason)
    core.send(connection, fate)


def _discarded(core: SyncerMemory, contribution: training.Contribution) -> bool:
    """Return whether a report that overtook these tokens has counted them as overwritten."""
    ticket, fragment = contribution.ticket, contribution.fragment
    held = core.members.learners[ticket.name].holds(fragment)
    published = core.versions.published[fragment]
    if published is None or held != published.version or held <= contribution.base:
        return False
    return ticket.epoch < core.durable.epoch or ticket.round <= published.round


def _kept_out(ticket: Ticket, reason: str) -> KeptOut:
    return KeptOut(ticket.name, f"contribution {ticket}", reason)


def _admitted(core: SyncerMemory, ticket: Ticket) -> Admitted | None:
    """Return the answer to a ticket that waits for its merge, whatever its sender says next."""
    for round_ in core.rounds.open.values():
        if round_.stage is Stage.JOURNALLING:
            continue
        held = round_.arrived.get(ticket.name)
        if held is not None and held.contribution.ticket == ticket:
            return held
    return None


def _drop(core: SyncerMemory, ticket: Ticket, connection: int, *, others: bool = False) -> None:
    """Free the payload of an answer that has just come; one that waits for its merge stays.

    So do those over other links, if one of these may yet be admitted (`others`).
    """
    held = _admitted(core, ticket)
    if held is None or held.connection != connection:
        alone = others or held is not None
        core.actions.append(DropContribution(ticket, connection if alone else None))


@HANDLERS.handles(training.ContributionOffered)
def on_offered(
    core: SyncerMemory, offered: training.ContributionOffered, connection: int, now_s: float
) -> None:
    """Note since when a contribution has been on its way (`pulls.py`)."""
    learner = _asked(core, offered.ticket, connection)
    pull = None if learner is None else learner.pulls.open.get(offered.ticket.round)
    if pull is not None and offered.size_bytes > 0:
        pull.offered_s, pull.size_bytes = now_s, offered.size_bytes


def _judge_arrived(core: SyncerMemory, learner: LearnerRecord, pull: Pull, now_s: float) -> None:
    if pull.offered_s is None:
        return
    before_s = pull.offered_s - pull.first_s
    within_s = budget_s(core.settings, core.fragments, step_s=core.step_s, before_s=before_s)
    seconds = max(0.0, now_s - learner.precision.began_s(pull.offered_s))
    transfer = Transfer(pull.size_bytes, seconds, within_s)
    reason = learner.precision.arrived(transfer, now_s)
    if reason is not None:
        adapted = member_entries.Adapted(
            name=learner.name,
            precision=learner.precision.precision.value,
            reason=reason,
            bytes=transfer.size_bytes,
            seconds=seconds,
            bytes_per_s=transfer.bytes_per_s,
            before_s=before_s,
            budget_s=within_s,
        )
        core.record(adapted)


def _asked(core: SyncerMemory, ticket: Ticket, connection: int) -> LearnerRecord | None:
    """Return whose ticket it is; None if it is of another incarnation, epoch or link."""
    learner = core.members.learners.get(ticket.name)
    if learner is None or learner.incarnation != ticket.incarnation:
        return None
    valid = connection == learner.connection and ticket.epoch == core.durable.epoch
    return learner if valid else None


@HANDLERS.handles(training.ContributionDeclined)
def on_decline(
    core: SyncerMemory, declined: training.ContributionDeclined, connection: int, now_s: float
) -> None:
    """Excuse a learner that has nothing to answer with; over a link that is gone it is void."""
    ticket = declined.ticket
    learner = _asked(core, ticket, connection)
    pull = None if learner is None else learner.pulls.open.get(ticket.round)
    if learner is not None and pull is not None:
        end_pull(core, learner, ticket.round, pull.fragment, now_s)
        _end_without(core, ticket, pull.fragment, declined.reason)
        core.members.touch(learner.name)


def end_pull(
    core: SyncerMemory, learner: LearnerRecord, number: int, fragment: int, now_s: float
) -> Pull | None:
    """End a pull, and earlier ones of its fragment; return it if it was open."""
    core.hear(learner, now_s)
    pull = learner.pulls.end(number)
    for earlier in learner.pulls.overtaken(number, fragment) if pull is not None else ():
        learner.pulls.end(earlier)
        ticket = Ticket(core.durable.epoch, earlier, learner.name, learner.incarnation)
        _end_without(core, ticket, fragment, OVERTAKEN)
    return pull


def _end_without(core: SyncerMemory, ticket: Ticket, fragment: int, reason: str) -> None:
    """Record that a pull ended without a contribution, and excuse its learner."""
    core.record(round_entries.Declined(str(ticket), fragment, reason))
    round_ = core.rounds.open.get(fragment)
    if round_ is not None and round_.asked.get(ticket.name) == ticket:
        round_.excuse(ticket.name, reason)


def withdraw(core: SyncerMemory, name: LearnerName) -> None:
    """Remove an ended incarnation from rounds that collect; a closed one was decided before."""
    for round_ in core.rounds.open.values():
        if round_.stage is not Stage.COLLECTING:
            continue
        admitted = round_.withdraw(name)
        if admitted is not None:
            core.actions.append(DropContribution(admitted.contribution.ticket))
            record_fate(core, admitted.contribution, Fate.REJECTED, reason="fenced")


def record_fate(
    core: SyncerMemory, contribution: training.Contribution, fate: Fate, **why: str
) -> None:
    """Put a contribution's fate on the tape, with the reason or the version that holds it."""
    core.record(
        round_entries.FateTold(
            ticket=str(contribution.ticket),
            fragment=contribution.fragment,
            fate=fate,
            tokens=contribution.tokens,
            **why,
        )
    )
